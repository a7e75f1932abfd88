package idem

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
)

// Some servers take the key from the request's body, Contract.Field. It is put
// there between the frozen body and the attempt, so that the fingerprint is that
// of what the caller asks for.

// fieldKey returns the key that the caller has put into the field itself, or
// "". Its error says why the body can't carry a key.
func (c Contract) fieldKey(h http.Header, body []byte) (Key, error) {
	place, err := c.place(h, body)
	if err != nil || place.own == "" {
		return "", err
	}
	return place.own, place.own.Validate()
}

// withKey is the body with the key in the field, and otherwise the same bytes.
func (c Contract) withKey(h http.Header, body []byte, wire string) ([]byte, error) {
	place, err := c.place(h, body)
	if err != nil || place.own != "" {
		return body, err
	}
	keyed := make([]byte, 0, len(body)+len(place.before)+len(wire)+len(place.after)+2)
	keyed = append(append(keyed, body[:place.at]...), place.before...)
	keyed = append(append(keyed, place.encode(wire)...), place.after...)
	return append(keyed, body[place.at:]...), nil
}

// errNoPlace: the body is of a kind that has no place for a key.
var errNoPlace = errors.New("no place for a key")

// place is where a key goes into a body.
type place struct {
	at            int
	before, after string
	encode        func(string) string
	own           Key // that is there already
}

func (c Contract) place(h http.Header, body []byte) (place, error) {
	contentType := h.Get("Content-Type")
	media, _, err := mime.ParseMediaType(contentType)
	switch encoding := h.Get("Content-Encoding"); {
	case len(body) == 0:
		err = fmt.Errorf("%w: there is none", errNoPlace)
	case encoding != "" && !strings.EqualFold(encoding, "identity"):
		err = fmt.Errorf("%w: its Content-Encoding is %q", errNoPlace, encoding)
	case err != nil && contentType != "":
		err = fmt.Errorf("%w: its Content-Type %q can't be read: %w", errNoPlace, contentType, err)
	case media == "application/x-www-form-urlencoded":
		return c.formPlace(body)
	case media == "application/json" || strings.HasSuffix(media, "+json") || contentType == "" && body[0] == '{':
		p, err := jsonPlace(body, strings.Split(c.Field, "."))
		return p, c.badBody(err)
	default:
		err = fmt.Errorf("%w: its Content-Type is %q", errNoPlace, contentType)
	}
	return place{}, c.badBody(err)
}

func (c Contract) badBody(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: the server takes the key in the body's field %s, and this body can't carry it: %w; send a JSON object or a form", ErrInvalidIntent, c.Field, err)
}

func (c Contract) formPlace(body []byte) (place, error) {
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return place{}, c.badBody(err)
	}
	p := place{at: len(body), before: "&" + url.QueryEscape(c.Field) + "=", encode: url.QueryEscape}
	switch own := form[c.Field]; {
	case len(own) > 1:
		return p, c.badBody(errors.New("the form has the field several times"))
	case len(own) == 1 && own[0] == "":
		return p, c.badBody(errors.New("the form has the field without a value"))
	case len(own) == 1:
		p.own = Key(own[0])
	}
	return p, nil
}

// jsonPlace finds the place for the member that path leads to. All but the last
// of its names must lead to objects that are there.
func jsonPlace(object []byte, path []string) (p place, err error) {
	d := json.NewDecoder(bytes.NewReader(object))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return p, notObject(err)
	}
	p = place{at: int(d.InputOffset()), before: string(mustJSON(path[0])) + ":", encode: func(s string) string { return string(mustJSON(s)) }}
	if d.More() {
		p.after = ","
	}
	var found json.RawMessage
	var end int
	for d.More() {
		name, err := d.Token()
		var value json.RawMessage
		if err == nil {
			err = d.Decode(&value)
		}
		switch {
		case err != nil:
			return p, notObject(err)
		case name == path[0] && found != nil:
			return p, fmt.Errorf("it has the member %q twice", path[0])
		case name == path[0]:
			found, end = value, int(d.InputOffset())
		}
	}
	if _, err := d.Token(); err != nil {
		return p, notObject(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return p, errors.New("it goes on after its JSON")
	}
	switch {
	case len(path) > 1 && found == nil:
		return p, fmt.Errorf("%w: it has no member %q", errNoPlace, path[0])
	case len(path) > 1:
		p, err = jsonPlace(found, path[1:])
		p.at += end - len(found)
		return p, err
	case found == nil:
		return p, nil
	}
	var own string
	if json.Unmarshal(found, &own) != nil || own == "" {
		return p, fmt.Errorf("its member %q is no string, or an empty one; leave it out, or make it a key", path[0])
	}
	p.own = Key(own)
	return p, nil
}

func notObject(err error) error {
	if err == nil {
		return fmt.Errorf("%w: it is no JSON object", errNoPlace)
	}
	return fmt.Errorf("%w: it is no JSON: %w", errNoPlace, err)
}

func mustJSON(s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic("idem: a string always encodes: " + err.Error())
	}
	return b
}
