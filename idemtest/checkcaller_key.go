package idemtest

import (
	"encoding/json"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/idem-go/idem"
)

// callerKeys are the keys that a request carries, each as the server reads it.
// An empty one is none.
func callerKeys(c idem.Contract, h http.Header, body []byte) (keys []string) {
	raw := h.Values(c.Header)
	if c.Field != "" {
		raw = fieldKeys(c.Field, h.Get("Content-Type"), body)
	}
	for _, v := range raw {
		if c.Field == "" {
			v = strings.TrimSpace(v)
			// Quoted or not, it is the same key. What ParseKey does not take,
			// other servers may.
			if key, err := idem.ParseKey(v); err == nil {
				v = string(key)
			}
		}
		if v != "" && v != `""` {
			keys = append(keys, v)
		}
	}
	return keys
}

// fieldKeys reads a field of a form, or a member of a JSON object.
func fieldKeys(field, contentType string, body []byte) []string {
	if media, _, err := mime.ParseMediaType(contentType); err == nil && media == "application/x-www-form-urlencoded" {
		form, err := url.ParseQuery(string(body))
		if err != nil {
			return nil
		}
		return form[field]
	}
	found := json.RawMessage(body)
	for name := range strings.SplitSeq(field, ".") {
		var object map[string]json.RawMessage
		if json.Unmarshal(found, &object) != nil {
			return nil
		}
		found = object[name]
	}
	var key string
	if json.Unmarshal(found, &key) != nil {
		return nil
	}
	return []string{key}
}
