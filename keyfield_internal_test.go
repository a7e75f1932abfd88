package idem

import (
	"bytes"
	"encoding/json"
	"net/http"
	"reflect"
	"testing"
)

// A body that takes the key is a JSON object with the key, and without it what
// it was, byte for byte.
func FuzzField(f *testing.F) {
	for _, seed := range []string{`{}`, `{"a":1}`, ` { "in" : {"b":[1,{}]}} `, `{"key":"own"}`, `{"in":{},"in":{}}`, `[]`, `{"a":1}x`, "{\"\\u006bey\":\"x\"}"} {
		f.Add([]byte(seed), false)
		f.Add([]byte(seed), true)
	}
	f.Fuzz(func(t *testing.T, body []byte, nested bool) {
		c := Contract{Field: "key"}
		if nested {
			c.Field = "in.key"
		}
		own, err := c.fieldKey(http.Header{"Content-Type": {"application/json"}}, body)
		keyed, again := c.withKey(http.Header{"Content-Type": {"application/json"}}, body, "KEY")
		if again != nil {
			if err == nil {
				t.Fatalf("%q is fit to look at, and then %v", body, again)
			}
			return
		}
		if own != "" || err != nil {
			if !bytes.Equal(keyed, body) {
				t.Fatalf("%q has a key of its own, and became %q", body, keyed)
			}
			return
		}
		var before, after map[string]any
		if json.Unmarshal(body, &before) != nil || json.Unmarshal(keyed, &after) != nil {
			t.Fatalf("%q became %q", body, keyed)
		}
		object := after
		if nested {
			object = after["in"].(map[string]any)
		}
		if object["key"] != "KEY" {
			t.Fatalf("%q became %q", body, keyed)
		}
		if delete(object, "key"); !reflect.DeepEqual(before, after) {
			t.Fatalf("%q became %q", body, keyed)
		}
		without := bytes.Replace(keyed, []byte(`"key":"KEY",`), nil, 1)
		if !bytes.Equal(without, body) && !bytes.Equal(bytes.Replace(keyed, []byte(`"key":"KEY"`), nil, 1), body) {
			t.Fatalf("%q became %q", body, keyed)
		}
	})
}
