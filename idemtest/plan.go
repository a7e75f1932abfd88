package idemtest

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"slices"
)

// Plan picks the fault for an attempt; attempts are counted per key, from 1.
// It is called concurrently.
type Plan func(key string, attempt int) Fault

// Script plays the same faults for every key: the first attempt under a key
// meets the first one, and so on; what comes after the last one passes. So
// each of several concurrent intents sees the whole script. Requests without a
// key share one.
func Script(faults ...Fault) Plan {
	faults = slices.Clone(faults)
	return func(_ string, attempt int) Fault {
		if attempt <= len(faults) {
			return faults[attempt-1]
		}
		return Pass
	}
}

// Random picks a fault for a share of the attempts, rate, between 0 and 1. Each
// fault is as likely as another; without any, those of Faults are meant. The
// same seed picks the same fault for the same key and attempt, in whatever
// order attempts come.
func Random(seed uint64, rate float64, faults ...Fault) Plan {
	faults = slices.Clone(faults)
	if len(faults) == 0 {
		faults = Faults()
	}
	return func(key string, attempt int) Fault {
		sum := sha256.Sum256([]byte(key))
		r := rand.New(rand.NewPCG(seed^binary.BigEndian.Uint64(sum[:]), uint64(attempt)))
		if r.Float64() >= rate {
			return Pass
		}
		return faults[r.IntN(len(faults))]
	}
}
