package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/idem-go/idem"
)

// HeaderKey returns a Config.Key that reads another header than
// Idempotency-Key, such as that which names a webhook's event on every
// delivery: webhook-id (Standard Webhooks) or X-GitHub-Delivery. Its value is
// read as it is, without quotes as of RFC 9651. Two such lines are refused. An
// empty name is a programming error: it panics.
func HeaderKey(name string) func(*http.Request) (idem.Key, error) {
	if name == "" {
		panic("idem: server: HeaderKey needs the name of a header")
	}
	return func(r *http.Request) (idem.Key, error) {
		switch lines := r.Header.Values(name); len(lines) {
		case 0:
			return "", nil
		case 1:
			if lines[0] == "" {
				return "", fmt.Errorf("%w: the header %s is empty", idem.ErrInvalidKey, name)
			}
			return idem.Key(lines[0]), nil
		default:
			return "", fmt.Errorf("%w: the request has %d %s lines; send one", idem.ErrInvalidKey, len(lines), name)
		}
	}
}

// JSONKey returns a Config.Key that reads the key from the request's body, at
// the path of member names joined by dots: "id" is that of Stripe's events. Where
// one thing is told of under several event IDs, name what the business calls it,
// such as "data.object.id". The value is a string, or a number by its digits. A
// body without the member has no key, nor has a GET, HEAD, OPTIONS or TRACE; a
// body that is no JSON, or has a member of the path twice, is refused. An empty
// path panics.
//
// Retries of a webhook need not send the same body: Stripe's events count their
// pending deliveries. Set Config.Fingerprint to KeyAlone for those.
func JSONKey(path string) func(*http.Request) (idem.Key, error) {
	if path == "" {
		panic("idem: server: JSONKey needs a path")
	}
	names := strings.Split(path, ".")
	return func(r *http.Request) (idem.Key, error) {
		if safe(r.Method) { // such as the challenge by which some endpoints are confirmed
			return "", nil
		}
		var body []byte
		if r.Body != nil {
			var err error
			if body, err = io.ReadAll(r.Body); err != nil {
				return "", err
			}
		}
		var err error
		for _, name := range names {
			if body, err = member(body, name); err != nil || body == nil {
				return "", err
			}
		}
		return keyOf(body, path)
	}
}

// KeyAlone is a Config.Fingerprint under which the key alone says what a
// request asks for, whatever its body: for webhooks whose body differs from one
// delivery to the next.
func KeyAlone(*http.Request, []byte) (any, error) { return nil, nil }

// member returns a member of a JSON object, nil if it has none. Parsers differ
// in which of two members of one name they take, so two are refused.
func member(object []byte, name string) (found json.RawMessage, err error) {
	d := json.NewDecoder(bytes.NewReader(object))
	open, err := d.Token()
	if err != nil {
		return nil, fmt.Errorf("%w: the body is no JSON: %w", idem.ErrInvalidKey, err)
	}
	if open != json.Delim('{') {
		return nil, nil
	}
	for d.More() {
		key, err := d.Token()
		var value json.RawMessage
		if err == nil {
			err = d.Decode(&value)
		}
		switch {
		case err != nil:
			return nil, fmt.Errorf("%w: the body is no JSON: %w", idem.ErrInvalidKey, err)
		case key == name && found != nil:
			return nil, fmt.Errorf("%w: the body has the member %q twice", idem.ErrInvalidKey, name)
		case key == name:
			found = value
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, fmt.Errorf("%w: the body is no JSON: %w", idem.ErrInvalidKey, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: the body goes on after its JSON", idem.ErrInvalidKey)
	}
	return found, nil
}

func keyOf(value json.RawMessage, path string) (idem.Key, error) {
	d := json.NewDecoder(bytes.NewReader(value))
	d.UseNumber()
	switch token, _ := d.Token(); v := token.(type) {
	case string:
		if v == "" {
			return "", fmt.Errorf("%w: the member %s is empty", idem.ErrInvalidKey, path)
		}
		return idem.Key(v), nil
	case json.Number:
		return idem.Key(v), nil
	default:
		return "", fmt.Errorf("%w: the member %s is %.20s; it must be a string or a number", idem.ErrInvalidKey, path, value)
	}
}
