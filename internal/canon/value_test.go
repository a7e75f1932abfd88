//lint:file-ignore U1000,SA5008 fields that nobody reads and tags that are malformed are what is tested

package canon

import (
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"
)

type (
	item struct {
		SKU   string
		token string
	}
	order struct {
		ID    string `json:"id"`
		Items []item
	}
	skipped struct {
		Visible int
		Secret  string `json:"-"`
	}
	base1  struct{ ID, Name string }
	base2  struct{ ID int }
	shadow struct {
		base1
		ID string
	}
	twins struct {
		base1
		base2
	}
	sameTag struct {
		A int `json:"B"`
		B int
	}
	dashName struct {
		A int `json:"-,"`
	}
	loop struct {
		*loop
		A int
	}
	list struct {
		Value string
		Next  *list `json:",omitempty"`
	}
	promoting struct {
		time.Time
		Amount int
	}
	stamp    struct{ time.Time }
	blank    struct{ _, A int }
	embedder struct {
		base1
		Extra *int
	}
	viaPtr struct {
		*base1
		N int
	}
	withFunc struct {
		Hooks map[string][]func()
	}
	byPointer struct{ hidden string } // its marshaller has a pointer receiver
	badText   struct{ b byte }
	merged    struct{ n int } // all of its texts are one
	textOnly  interface{ MarshalText() ([]byte, error) }
	parcel    struct {
		ID    string
		Order *order
	}
	holder    struct{ P byPointer }
	viaHolder struct{ *holder }
	textByPtr struct{ b byte }
	badTag    struct {
		A int `json:"x\\y"` // not a valid name, so A, which B then takes
		B int `json:"A"`
	}
	bothWays struct{ b byte } // has MarshalJSON too, which an interface with MarshalText ignores
)

func (p *byPointer) MarshalJSON() ([]byte, error) { return json.Marshal(p.hidden) }
func (p *textByPtr) MarshalText() ([]byte, error) {
	if p == nil {
		return nil, errors.New("nil")
	}
	return []byte{p.b}, nil
}
func (t badText) MarshalText() ([]byte, error)  { return []byte{t.b}, nil }
func (merged) MarshalText() ([]byte, error)     { return []byte("one"), nil }
func (b bothWays) MarshalText() ([]byte, error) { return []byte{b.b}, nil }
func (bothWays) MarshalJSON() ([]byte, error)   { return []byte("1"), nil }

func TestValue(t *testing.T) {
	n := 7
	for _, tc := range []struct {
		name string
		v    any
		json string
	}{
		{"nil", nil, `null`},
		{"nil pointer", (*list)(nil), `null`},
		{"number", 9007199254740993, `9007199254740993`},
		{"bytes", []byte{0xff}, `"/w=="`},
		{"raw message", json.RawMessage(`{"b":1,"a":2}`), `{"a":2,"b":1}`},
		{"time", time.Unix(0, 0).UTC(), `"1970-01-01T00:00:00Z"`},
		{"time alone in a struct", stamp{time.Unix(0, 0).UTC()}, `"1970-01-01T00:00:00Z"`},
		{"big integer", big.NewInt(5), `5`},
		{"text as key", map[badText]int{{'k'}: 1}, `{"k":1}`},
		{"integer keys", map[int8]string{-1: "a"}, `{"-1":"a"}`},
		{"tree of interfaces", map[string]any{"b": []any{1, "x", nil}, "a": map[string]any{}}, `{"a":{},"b":[1,"x",null]}`},
		{"embedded", embedder{base1{"i", "n"}, &n}, `{"ID":"i","Name":"n","Extra":7}`},
		{"embedded nil pointer", viaPtr{N: 1}, `{"N":1}`},
		{"list", list{"a", &list{"b", nil}}, `{"Value":"a","Next":{"Value":"b"}}`},
		{"name that is a dash", dashName{1}, `{"-":1}`},
		{"blank field", blank{A: 1}, `{"A":1}`},
		{"pointer receiver, addressable", []byPointer{{"x"}}, `["x"]`},
		{"pointer receiver behind a pointer", map[string]*byPointer{"k": {"x"}}, `{"k":"x"}`},
		{"pointer receiver behind an embedded pointer", viaHolder{&holder{byPointer{"x"}}}, `{"P":"x"}`},
		{"text with pointer receiver, addressable", []textByPtr{{'x'}}, `["x"]`},
		{"nil pointer as key", map[*textByPtr]int{nil: 1}, `{"":1}`},
		{"replacement character", "\ufffd", `"\ufffd"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for range 2 { // afresh, then with what is known of the type
				got, err := Value(tc.v)
				if err != nil {
					t.Fatal(err)
				}
				if got != JSON([]byte(tc.json)) {
					t.Errorf("differs from %s", tc.json)
				}
			}
		})
	}
}

func TestValueRefuses(t *testing.T) {
	for _, tc := range []struct {
		name string
		v    any
		path string
	}{
		{"unexported field", &order{Items: []item{{token: "t"}}}, "order.Items[].token"},
		{"unexported field, no value there", order{}, "order.Items[].token"},
		{"unexported field in an interface", map[string]any{"k": []any{1, item{}}}, "[].([]interface {})[].(canon.item).token"},
		{"unexported field in an interface, no value there", []any{order{}}, "[].(canon.order).Items[].token"},
		{"text with pointer receiver, invalid UTF-8", []textByPtr{{0xff}}, "[]"},
		{"unexported field behind nil in an interface", []any{parcel{}}, "[].(canon.parcel).Order.Items[].token"},
		{"invalid name in a tag", badTag{}, "badTag.B"},
		{"json:-", skipped{}, "skipped.Secret"},
		{"shadowed field", shadow{}, "shadow.ID"},
		{"two embedded fields of one name", twins{}, "twins.base2.ID"},
		{"tag that takes another field's name", sameTag{}, "sameTag.B"},
		{"embeds itself", loop{}, "loop.loop"},
		{"marshaller of an embedded field", promoting{}, "promoting.Time"},
		{"marshaller of an embedded field, behind a pointer", &promoting{}, "promoting.Time"},
		{"marshaller of an embedded field, in an interface", []json.Marshaler{&promoting{}}, "[].(*canon.promoting).Time"},
		{"pointer receiver, not addressable", byPointer{}, "byPointer.hidden"},
		{"pointer receiver in a map", map[string]byPointer{}, "[].hidden"},
		{"pointer receiver in an array", [1]byPointer{}, "[].hidden"},
		{"function", withFunc{}, "withFunc.Hooks[][]"},
		{"channel", make(chan int), "chan int"},
		{"complex", struct{ C complex128 }{}, "C"},
		{"key that is no name", map[float64]int{}, "[key]"},
		{"invalid UTF-8", list{"a", &list{"\xff", nil}}, "list.Next.Value"},
		{"invalid UTF-8 in an interface", []any{"ok", "\xff"}, "[].(string)"},
		{"invalid UTF-8 in a key", map[string]int{"\xff": 1}, "[key]"},
		{"invalid UTF-8 in a text", []badText{{0xff}}, "[]"},
		{"invalid UTF-8 in a text as key", map[badText]int{{0xff}: 1}, "[key]"},
		{"invalid UTF-8 in a text interface", []textOnly{bothWays{0xff}}, "[]"},
		{"keys with one text", map[merged]int{{1}: 1, {2}: 2}, "[key]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for range 2 {
				_, err := Value(tc.v)
				var fe *FieldError
				if !errors.As(err, &fe) {
					t.Fatalf("got %v, want a *FieldError", err)
				}
				if fe.Path != tc.path || fe.Reason == "" || !strings.Contains(err.Error(), tc.path) {
					t.Errorf("got %v, want path %s", err, tc.path)
				}
			}
		})
	}
}

func TestValueMarshalErrors(t *testing.T) {
	ring := &list{}
	ring.Next = ring
	for name, v := range map[string]any{"NaN": math.NaN(), "infinite": []float64{math.Inf(1)}, "cycle": ring} {
		var unsupported *json.UnsupportedValueError
		if _, err := Value(v); !errors.As(err, &unsupported) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

type alwaysZero struct{ Next *alwaysZeroHolder }

type alwaysZeroHolder struct {
	Name string
	Next alwaysZero `json:",omitzero"`
}

func (alwaysZero) IsZero() bool { return true }

func TestValueCycleHiddenFromMarshal(t *testing.T) {
	ring := &alwaysZeroHolder{Name: "n"}
	ring.Next.Next = ring
	var fe *FieldError
	if _, err := Value(ring); !errors.As(err, &fe) {
		t.Fatalf("got %v, want a *FieldError", err)
	}
}

func BenchmarkValue(b *testing.B) {
	type line struct {
		SKU      string
		Quantity int
		Price    string
	}
	v := struct {
		ID    string
		Lines []line
	}{"ord_1", make([]line, 10)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Value(v); err != nil {
			b.Fatal(err)
		}
	}
}
