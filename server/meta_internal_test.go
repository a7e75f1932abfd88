package server

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem/keystore"
)

// What is written without encoding/json is read by it.
func TestMeta(t *testing.T) {
	for _, text := range []string{"", "a", `"\`, "\n\x00\x7f", "<&>", "é\u2028", "\xff", strings.Repeat("x", maxName)} {
		for _, m := range []meta{
			{Version: 1, Scope: text},
			{Version: 1, Key: text, Method: text, Path: text},
			{Version: 1, ID: text, Retention: time.Hour, Discard: true},
			{Version: 1, Scope: text, Tries: 3, NextTry: time.Minute},
		} {
			got, err := metaOf(keystore.Record{Meta: m.encode()})
			marshalled, _ := json.Marshal(m)
			want, wantErr := metaOf(keystore.Record{Meta: marshalled})
			if err != nil || wantErr != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%+v came back as %+v, %v", m, got, err)
			}
		}
	}
}
