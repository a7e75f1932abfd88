package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"io"
	"net/http"
	"sync"
)

// handmade is the least that a middleware for keys does: it reads the body, hashes
// its JSON whatever the order of its members, and keeps an answer in a map. A
// crash, a duplicate at the same time, a panic, a client that hangs up and a
// record that is never removed are not its business.
func handmade(_ *stage, h http.Handler) (http.Handler, error) {
	var mu sync.Mutex
	answers := map[string]*handRecord{}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get(keyHeader)
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		sum, err := handSum(body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		mu.Lock()
		rec := answers[key]
		if rec == nil {
			answers[key] = &handRecord{sum: sum}
		}
		mu.Unlock()
		switch {
		case rec == nil:
			kept := &handRecorder{handRecord{sum: sum, header: http.Header{}}}
			r.Body = io.NopCloser(bytes.NewReader(body))
			h.ServeHTTP(kept, r)
			mu.Lock()
			rec = &kept.handRecord
			answers[key] = rec
			mu.Unlock()
		case rec.sum != sum || rec.status == 0:
			w.WriteHeader(http.StatusConflict)
			return
		}
		for name, values := range rec.header {
			w.Header()[name] = values
		}
		w.WriteHeader(rec.status)
		_, _ = w.Write(rec.body)
	}), nil
}

func handSum(body []byte) ([32]byte, error) {
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		return [32]byte{}, err
	}
	canonical, err := json.Marshal(v)
	return sha256.Sum256(canonical), err
}

type handRecord struct {
	sum    [32]byte
	status int
	header http.Header
	body   []byte
}

type handRecorder struct {
	handRecord
}

func (rec *handRecorder) Header() http.Header    { return rec.header }
func (rec *handRecorder) WriteHeader(status int) { rec.status = status }
func (rec *handRecorder) Write(b []byte) (int, error) {
	rec.body = append(rec.body, b...)
	return len(b), nil
}
