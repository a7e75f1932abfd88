package main

import (
	"fmt"
	"time"
)

// row is a line of the table: medians over the rounds.
type row struct {
	Group  string   `json:"group"`
	Name   string   `json:"name"`
	Nanos  float64  `json:"ns_op"`
	Bytes  float64  `json:"bytes_op"`
	Allocs float64  `json:"allocs_op"`
	Ops    int      `json:"ops"`
	Checks []result `json:"checks,omitempty"`
	Error  string   `json:"error,omitempty"`
}

// result is what became of a check.
type result struct {
	// Against names the baseline, of the same rounds; empty: an absolute figure.
	Against string  `json:"against,omitempty"`
	Value   float64 `json:"value"`
	Unit    unit    `json:"unit"`
	// Target and Holds are empty where nothing is promised.
	Target string `json:"target,omitempty"`
	Holds  *bool  `json:"holds,omitempty"`
}

// unit says what a check's number is.
type unit string

const (
	times    unit = "times"    // as long as the baseline
	faster   unit = "faster"   // so many times as fast as the baseline
	addedNS  unit = "added ns" // more than the baseline
	addedN   unit = "added allocs"
	allocs   unit = "allocs"
	bytesPer unit = "bytes"
)

// show writes a number of the unit for people.
func (u unit) show(v float64) string {
	switch u {
	case times:
		return fmt.Sprintf("×%.2f", v)
	case faster:
		return fmt.Sprintf("%.2f× as fast", v)
	case addedNS:
		if v < 0 {
			return "-" + duration(-v)
		}
		return "+" + duration(v)
	case addedN:
		return fmt.Sprintf("%+.0f allocs", v)
	case bytesPer:
		return fmt.Sprintf("%.0f B", v)
	default:
		return fmt.Sprintf("%.0f allocs", v)
	}
}

// check compares a contender with others of the same rounds.
type check struct {
	against string
	unit    unit
	of      func(me sample, all round) float64
	limit   float64
	// least tells that the limit is the least and not the most that holds; without
	// a target nothing is promised.
	target, least bool
}

// newRow is the medians of a contender. A ratio is the median of those of the
// rounds, so that a round in which the machine was busy counts once.
func newRow(group string, c contender, rounds []round) row {
	r := row{Group: group, Name: c.name}
	over := func(f func(me sample, all round) float64) float64 {
		var values []float64
		for _, all := range rounds {
			values = append(values, f(all[c.name], all))
		}
		return median(values)
	}
	r.Nanos = over(func(me sample, _ round) float64 { return me.Nanos })
	r.Bytes = over(func(me sample, _ round) float64 { return me.Bytes })
	r.Allocs = over(func(me sample, _ round) float64 { return me.Allocs })
	for _, all := range rounds {
		r.Ops += all[c.name].ops
	}
	for _, k := range c.checks {
		r.Checks = append(r.Checks, k.judge(over(k.of)))
	}
	return r
}

func (k check) judge(v float64) result {
	res := result{Against: k.against, Value: v, Unit: k.unit}
	if !k.target {
		return res
	}
	holds, sign := v <= k.limit, "≤ "
	if k.least {
		holds, sign = v >= k.limit, "≥ "
	}
	res.Target, res.Holds = sign+k.unit.show(k.limit), &holds
	return res
}

// within is a check with the target that the number is at most limit.
func (k check) within(limit float64) check {
	k.target, k.limit = true, limit
	return k
}

// atLeast is a check with the target that the number is at least limit.
func (k check) atLeast(limit float64) check {
	k.target, k.least, k.limit = true, true, limit
	return k
}

// ratio is how many times as long as base it takes.
func ratio(base string) check {
	return check{against: base, unit: times, of: func(me sample, all round) float64 { return me.Nanos / all[base].Nanos }}
}

// speed is how many times as fast as base it is.
func speed(base string) check {
	return check{against: base, unit: faster, of: func(me sample, all round) float64 { return all[base].Nanos / me.Nanos }}
}

// added is how much longer than base it takes.
func added(base string) check {
	return check{against: base, unit: addedNS, of: func(me sample, all round) float64 { return me.Nanos - all[base].Nanos }}
}

// addedAllocs is how many allocations more than base it takes.
func addedAllocs(base string) check {
	return check{against: base, unit: addedN, of: func(me sample, all round) float64 { return me.Allocs - all[base].Allocs }}
}

// addedBy is before the name of a row whose baseline is not that of the others.
const addedBy = "added by "

// addedThan compares what is added to base with what a rival adds to its own.
func addedThan(base, rival, rivalBase string) check {
	return check{against: addedBy + rival, unit: times, of: func(me sample, all round) float64 {
		return (me.Nanos - all[base].Nanos) / (all[rival].Nanos - all[rivalBase].Nanos)
	}}
}

// allocations is how many it takes itself.
func allocations() check {
	return check{unit: allocs, of: func(me sample, _ round) float64 { return me.Allocs }}
}

// duration writes nanoseconds with three digits.
func duration(ns float64) string {
	switch {
	case ns < 1e3:
		return fmt.Sprintf("%.0f ns", ns)
	case ns < 1e4:
		return fmt.Sprintf("%.2f µs", ns/1e3)
	case ns < 1e6:
		return fmt.Sprintf("%.1f µs", ns/1e3)
	case ns < 1e7:
		return fmt.Sprintf("%.2f ms", ns/1e6)
	case ns < float64(time.Second):
		return fmt.Sprintf("%.1f ms", ns/1e6)
	default:
		return fmt.Sprintf("%.2f s", ns/1e9)
	}
}
