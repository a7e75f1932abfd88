package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
)

// otherBody is the JSON body with one value changed, and the path of it: the
// first number plus 1, which most endpoints take, or else the first text with
// an x behind it. It is nil if there is neither.
func otherBody(body []byte) (other []byte, path string) {
	if !json.Valid(body) {
		return nil, ""
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var text, number *leaf
	walkLeaves(d, "", func(l leaf) {
		switch l.value.(type) {
		case json.Number:
			if number == nil {
				number = &l
			}
		case string:
			if text == nil && l.value != "" {
				text = &l
			}
		}
	})
	if number != nil {
		n, end := string(number.value.(json.Number)), number.end
		return splice(body, end-len(n), end, []byte(increment(n))), number.path
	}
	if text != nil {
		return splice(body, text.end-1, text.end, []byte(`x"`)), text.path
	}
	return nil, ""
}

// leaf is a value in JSON that holds no others, {} and [] among them, and where
// its text ends.
type leaf struct {
	path  string
	value json.Token
	end   int
}

// walkLeaves calls found with each leaf of the next value, which is valid.
func walkLeaves(d *json.Decoder, path string, found func(leaf)) {
	tok, err := d.Token()
	if err != nil {
		return
	}
	opened, _ := tok.(json.Delim)
	if opened == 0 || !d.More() {
		found(leaf{path, tok, int(d.InputOffset())})
	}
	for i := 0; opened != 0 && d.More(); i++ {
		name := json.Token(i)
		if opened == '{' {
			name, _ = d.Token()
		}
		walkLeaves(d, joinPath(path, fmt.Sprint(name)), found)
	}
	if opened != 0 {
		_, _ = d.Token() // its end
	}
}

func joinPath(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func splice(body []byte, from, to int, text []byte) []byte {
	return append(append(append([]byte(nil), body[:from]...), text...), body[to:]...)
}

// increment is a number of JSON plus 1, or, in exponents, just another number.
func increment(n string) string {
	if i, ok := new(big.Int).SetString(n, 10); ok {
		return i.Add(i, big.NewInt(1)).String()
	}
	whole, fraction, _ := strings.Cut(n, ".")
	if i, ok := new(big.Int).SetString(whole, 10); ok && !strings.ContainsAny(fraction, "eE") && whole[0] != '-' {
		return i.Add(i, big.NewInt(1)).String() + "." + fraction
	}
	return "1"
}

var errNoObject = errors.New("the body is no JSON object")

// withKeyField is the body with the key in the member that the path leads to.
func withKeyField(body []byte, path, key string) ([]byte, error) {
	name, rest, deeper := strings.Cut(path, ".")
	var object map[string]json.RawMessage
	if err := json.Unmarshal(body, &object); err != nil || object == nil {
		return nil, errNoObject
	}
	if !deeper {
		if _, there := object[name]; there {
			return nil, fmt.Errorf("the body has a member %s; leave it out, keys are made here", name)
		}
		text, err := json.Marshal(key)
		if err != nil {
			return nil, err
		}
		object[name] = text
		return json.Marshal(object)
	}
	inner, err := withKeyField(object[name], rest, key)
	if errors.Is(err, errNoObject) {
		return nil, fmt.Errorf("the body's %s is no JSON object", name)
	} else if err != nil {
		return nil, err
	}
	object[name] = inner
	return json.Marshal(object)
}
