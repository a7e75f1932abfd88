package idem

import "testing"

// FuzzParseKey: whatever is read as a key is a valid one, and is read back from
// each of its spellings.
func FuzzParseKey(f *testing.F) {
	for _, seed := range []string{`abc`, `"abc"`, `"a b"`, `"a\"\\b"`, `a, b`, `"a", "b"`, `"a";v=1`, `"`, `""`, ` "k" `, "é", "a\nb"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		key, err := ParseKey(header)
		if err != nil {
			if key != "" {
				t.Fatalf("ParseKey(%q) = %q beside its error", header, key)
			}
			key = Key(header)
			if key.Validate() != nil {
				return
			}
		}
		if err := key.Validate(); err != nil {
			t.Fatalf("ParseKey(%q): %v", header, err)
		}
		for _, c := range []Contract{{}, {Quoted: true}} {
			if got, err := ParseKey(c.spell(key)); got != key || err != nil {
				t.Fatalf("%q is spelled %q, which is read as %q, %v", key, c.spell(key), got, err)
			}
		}
		if got, err := ParseKey(string(key)); key.bare() && (got != key || err != nil) {
			t.Fatalf("%q is bare, but read as %q, %v", key, got, err)
		}
	})
}
