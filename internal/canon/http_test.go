package canon

import (
	"crypto/sha256"
	"mime"
	"reflect"
	"testing"
)

func base() Request {
	return Request{
		Origin: "https://api.example.com", Method: "POST", Path: "/orders", Query: "a=1&b=2",
		ContentType: "application/json", Body: []byte(`{"a":1,"b":2}`),
	}
}

func TestHTTPEqual(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Request)
	}{
		{"B121 JSON bodies are compared canonically", func(r *Request) { r.Body = []byte(`{ "b":2, "a":1 }`) }},
		{"media type case", func(r *Request) { r.ContentType = "Application/JSON" }},
		{"media type blanks", func(r *Request) { r.ContentType = " application/json ; " }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := base()
			tc.change(&r)
			if HTTP(r) != HTTP(base()) {
				t.Error("differs")
			}
		})
	}
	t.Run("media type parameters", func(t *testing.T) {
		a, b := base(), base()
		a.ContentType = `application/vnd.x+json; charset=utf-8; v="1"`
		b.ContentType = `application/vnd.x+json;V=1;  Charset=utf-8`
		b.Body = []byte(`{"b":2,"a":1}`)
		if HTTP(a) != HTTP(b) {
			t.Error("differs")
		}
	})
	t.Run("no body", func(t *testing.T) {
		a, b := base(), base()
		a.Body, b.Body = nil, []byte{}
		if HTTP(a) != HTTP(b) {
			t.Error("nil and empty differ")
		}
	})
}

func TestHTTPDiffers(t *testing.T) {
	sum, zero := sha256.Sum256(nil), [32]byte{}
	seen := map[[32]byte]string{HTTP(base()): "base"}
	for _, tc := range []struct {
		name   string
		change func(*Request)
	}{
		{"B134 path", func(r *Request) { r.Path = "/orders/7/cancel" }},
		{"escaped path", func(r *Request) { r.Path = "/%6frders" }},
		{"method", func(r *Request) { r.Method = "PATCH" }},
		{"method case", func(r *Request) { r.Method = "post" }},
		{"origin", func(r *Request) { r.Origin = "http://api.example.com" }},
		{"query order", func(r *Request) { r.Query = "b=2&a=1" }},
		{"no query", func(r *Request) { r.Query = "" }},
		{"query in the path", func(r *Request) { r.Path, r.Query = "/orders?a=1&b=2", "" }},
		{"media type", func(r *Request) { r.ContentType = "application/x+json" }},
		{"media type parameter", func(r *Request) { r.ContentType = "application/json; v=1" }},
		{"no media type", func(r *Request) { r.ContentType = "" }},
		{"broken media type", func(r *Request) { r.ContentType = "application/json; v" }},
		{"two media types", func(r *Request) { r.ContentType = "application/json, application/json" }},
		{"B122 number", func(r *Request) { r.Body = []byte(`{"a":1.0,"b":2}`) }},
		{"B123 duplicate member", func(r *Request) { r.Body = []byte(`{"a":1,"b":2,"a":1}`) }},
		{"B125 array", func(r *Request) { r.Body = []byte(`[1,2]`) }},
		{"B125 array order", func(r *Request) { r.Body = []byte(`[2,1]`) }},
		{"no body", func(r *Request) { r.Body = nil }},
		{"payload", func(r *Request) { r.Payload = &sum }},
		{"zero payload", func(r *Request) { r.Payload = &zero }},
	} {
		r := base()
		tc.change(&r)
		got := HTTP(r)
		if other, ok := seen[got]; ok {
			t.Errorf("%s: same as %s", tc.name, other)
		}
		seen[got] = tc.name
	}
}

// In each case the two requests would be one if the body, or the header, were read more freely.
func TestHTTPTakesBytes(t *testing.T) {
	json, swapped := `{"a":"é","b":2}`, `{"b":2,"a":"\u00e9"}`
	for _, tc := range []struct{ name, typeA, bodyA, typeB, bodyB string }{
		{"text", "text/plain", json, "text/plain", swapped},
		{"no media type", "", json, "", swapped},
		{"many documents", "application/json-seq", json, "application/json-seq", swapped},
		{"charset other than UTF-8", "application/json; charset=latin1", json, "application/json; charset=latin1", swapped},
		{"media type does not parse", "application/json; =", json, "application/json; =", swapped},
		{"extended parameter", "application/json; v*=x''1", json, "application/json", json},
		{"backslash in parameter", `application/json; v="\x"`, json, `application/json; v="\\x"`, json},
		{"letter that lower-cases to ASCII", "application/\u212a+json", json, "application/k+json", json},
		{"case of a parameter's value", "application/json; v=a", json, "application/json; v=A", json},
		{
			"B128 multipart boundary", "multipart/form-data; boundary=x", "--x\r\n\r\n1\r\n--x--\r\n",
			"multipart/form-data; boundary=y", "--y\r\n\r\n1\r\n--y--\r\n",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, b := base(), base()
			a.ContentType, a.Body = tc.typeA, []byte(tc.bodyA)
			b.ContentType, b.Body = tc.typeB, []byte(tc.bodyB)
			if HTTP(a) == HTTP(b) {
				t.Error("share a fingerprint")
			}
			if again := a; HTTP(a) != HTTP(again) {
				t.Error("not stable")
			}
		})
	}
}

// FuzzHTTP moves bytes between neighbouring parts, and compares media types with what package mime makes of them.
func FuzzHTTP(f *testing.F) {
	f.Add("https://a", "POST", "/p", "q", "application/json", "Application/JSON; charset=UTF-8", []byte(`{"a":1}`))
	f.Add("", "", "", "", "", "multipart/form-data; boundary=x", []byte("--x--"))
	f.Add("a", "b", "c", "d", `a/b; c="\x"`, `a/b; c*0=x; c*1=y`, []byte{0})
	f.Fuzz(func(t *testing.T, origin, method, path, query, type1, type2 string, body []byte) {
		sum := HTTP(Request{Origin: origin, Method: method, Path: path, Query: query, ContentType: type1, Body: body})
		parts := [...]string{origin, method, path, query, type1}
		for i := range len(parts) - 1 {
			for cut := 1; cut <= min(len(parts[i]), 8); cut++ {
				p := parts
				at := len(p[i]) - cut
				p[i], p[i+1] = p[i][:at], p[i][at:]+p[i+1]
				if sum == HTTP(Request{p[0], p[1], p[2], p[3], p[4], body, nil}) {
					t.Fatalf("%q and %q share a fingerprint", parts, p)
				}
			}
		}
		for _, payload := range [][32]byte{{}, sum} {
			if sum == HTTP(Request{origin, method, path, query, type1, body, &payload}) {
				t.Fatal("payload makes no difference")
			}
		}
		other := HTTP(Request{origin, method, path, query, type2, body, nil})
		if sum == other && type1 != type2 {
			m1, p1, err1 := mime.ParseMediaType(type1)
			m2, p2, err2 := mime.ParseMediaType(type2)
			if err1 != nil || err2 != nil || m1 != m2 || !reflect.DeepEqual(p1, p2) {
				t.Fatalf("%q and %q share a fingerprint", type1, type2)
			}
		}
	})
}

func BenchmarkHTTP1KiB(b *testing.B) {
	r := base()
	r.Body = order1KiB()
	b.SetBytes(int64(len(r.Body)))
	b.ReportAllocs()
	for b.Loop() {
		HTTP(r)
	}
}
