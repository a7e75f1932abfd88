package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/idem-go/idem/internal/canon"
)

const (
	sumAlone  = "SHA-256 alone"
	sumStd    = "Unmarshal, Marshal, SHA-256"
	sumJSONV2 = "jsontext Canonicalize, SHA-256"
	sumIdem   = "idem, canonical JSON"
	sumRaw    = "idem, raw bytes"
)

// fingerprints compare ways from a JSON text to a digest that members' order
// and white space do not change. The first two lines look at the bytes only.
func fingerprints() []group {
	var groups []group
	for _, size := range []int{1 << 10, 64 << 10, 1 << 20} {
		text := orderList(size)
		checks := []check{speed(sumStd), ratio(sumJSONV2).within(1)}
		if size == 64<<10 {
			checks[0] = checks[0].atLeast(2.5)
		}
		groups = append(groups, group{
			name: fmt.Sprintf("fingerprint of %d KiB", size>>10), contenders: []contender{
				{name: sumAlone, open: digest(func() ([32]byte, error) { return sha256.Sum256(text), nil })},
				{name: sumRaw, open: digest(func() ([32]byte, error) { return requestDigest("application/octet-stream", text), nil }), checks: []check{ratio(sumAlone)}},
				{name: sumIdem, open: digest(func() ([32]byte, error) { return requestDigest("application/json", text), nil }), checks: checks},
				{name: sumStd, open: digest(func() ([32]byte, error) { return stdDigest(text) }), checks: []check{ratio(sumAlone)}},
				{name: sumJSONV2, open: digest(func() ([32]byte, error) { return jsontextDigest(text) }), checks: []check{ratio(sumAlone)}},
			},
		})
	}
	return groups
}

func digest(sum func() ([32]byte, error)) func(*stage) (func(int) error, error) {
	return func(*stage) (func(int) error, error) {
		want, err := sum()
		return func(int) error {
			got, err := sum()
			if err == nil && got != want {
				err = fmt.Errorf("two digests of one text: %x, %x", got, want)
			}
			return err
		}, err
	}
}

// requestDigest is what both halves make of a request.
func requestDigest(contentType string, body []byte) [32]byte {
	return canon.HTTP(canon.Request{Method: "POST", Path: "/charges", ContentType: contentType, Body: body})
}

// stdDigest is what encoding/json offers: maps are written in the order of their
// names.
func stdDigest(text []byte) ([32]byte, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return [32]byte{}, err
	}
	sorted, err := json.Marshal(v)
	return sha256.Sum256(sorted), err
}

// jsontextDigest canonicalises a copy by RFC 8785, whose numbers are float64s.
func jsontextDigest(text []byte) ([32]byte, error) {
	v := jsontext.Value(bytes.Clone(text))
	err := v.Canonicalize()
	return sha256.Sum256(v), err
}

// orderList is a JSON text of about this size, as a program would send it.
func orderList(size int) []byte {
	type line struct {
		SKU      string   `json:"sku"`
		Title    string   `json:"title"`
		Quantity int      `json:"quantity"`
		Cents    int      `json:"cents"`
		Tags     []string `json:"tags"`
		Gift     bool     `json:"gift"`
		Note     *string  `json:"note"`
	}
	type order struct {
		ID       string            `json:"id"`
		Customer map[string]string `json:"customer"`
		Currency string            `json:"currency"`
		Lines    []line            `json:"lines"`
		Amount   int               `json:"amount"`
	}
	o := order{ID: "order-17", Currency: "eur", Amount: 4200, Customer: map[string]string{"name": "Zoë Miller", "email": "zoe@example.com"}}
	var text []byte
	for len(text) < size {
		step := max(1, (size-len(text))/256)
		for range step {
			o.Lines = append(o.Lines, line{
				SKU: fmt.Sprintf("sku-%06d", len(o.Lines)), Title: "a \"quoted\" thing,\nin two lines", Quantity: 1 + len(o.Lines)%7,
				Cents: 1999 + len(o.Lines), Tags: []string{"new", "blue"}, Gift: len(o.Lines)%3 == 0,
			})
		}
		text, _ = json.Marshal(o) // strings and numbers only
	}
	return text
}
