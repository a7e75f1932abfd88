package canon

import (
	"encoding/json"
	"errors"
	"math/big"
	"net/netip"
	"reflect"
	"testing"
	"time"
	"unsafe"
)

type (
	receipt struct {
		ID      string `json:"id"`
		At      time.Time
		Amount  *big.Int
		Raw     json.RawMessage
		Lines   []line
		ByAddr  map[netip.Addr]uint
		Options map[string]*bool
		Blob    []byte
		Pair    [2]float64
		Parent  *receipt
		base1
	}
	line       struct{ Text string }
	pairJSON   struct{ s string }
	writesOnly struct{ S string }
	readsOnly  struct{ S string }
	textToJSON struct{ S string }
	readKey    string
	readIntKey int
	embedPtr   struct{ *base1 }
	embedOut   struct{ *Exported }
	Exported   struct{ A int }
	tree       struct {
		Kids map[string]tree
		Any  []any
	}
)

func (p *pairJSON) MarshalJSON() ([]byte, error) { return json.Marshal(p.s) }
func (p *pairJSON) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &p.s) }
func (writesOnly) MarshalJSON() ([]byte, error)  { return []byte("1"), nil }
func (*readsOnly) UnmarshalJSON([]byte) error    { return nil }
func (textToJSON) MarshalText() ([]byte, error)  { return nil, nil }
func (*textToJSON) UnmarshalJSON(b []byte) error { return nil }
func (*readIntKey) UnmarshalText(b []byte) error { return nil }
func (*readKey) UnmarshalText(b []byte) error    { return nil }

func TestCheckResultAccepts(t *testing.T) {
	for _, v := range []any{
		receipt{}, &receipt{}, []receipt{}, struct{}{}, 1, "", true, 1.5, uintptr(1), time.Time{}, time.Second, json.RawMessage{}, json.Number(""),
		map[string]string{}, map[int]int{}, new(*int), pairJSON{}, &pairJSON{}, []pairJSON{}, [1]pairJSON{}, map[string]*pairJSON{},
		struct{ P pairJSON }{}, embedOut{}, netip.Addr{}, stamp{}, list{},
	} {
		if err := CheckResult(reflect.TypeOf(v)); err != nil {
			t.Errorf("%T: %v", v, err)
		}
	}
}

func TestCheckResultRefuses(t *testing.T) {
	for _, tc := range []struct {
		name string
		typ  reflect.Type
		path string
	}{
		{"unexported field", reflect.TypeFor[*order](), "order.Items[].token"},
		{"json:-", reflect.TypeFor[skipped](), "skipped.Secret"},
		{"shadowed field", reflect.TypeFor[shadow](), "shadow.ID"},
		{"any", reflect.TypeFor[any](), "interface {}"},
		{"error", reflect.TypeFor[struct{ Err error }](), "Err"},
		{"interface with marshaller", reflect.TypeFor[[]json.Marshaler](), "[]"},
		{"recursive type", reflect.TypeFor[tree](), "tree.Kids[].Any[]"},
		{"function", reflect.TypeFor[func()](), "func()"},
		{"channel", reflect.TypeFor[map[string]chan int](), "[]"},
		{"complex", reflect.TypeFor[[]complex64](), "[]"},
		{"unsafe pointer", reflect.TypeFor[unsafe.Pointer](), "Pointer"},
		{"only written", reflect.TypeFor[writesOnly](), "writesOnly"},
		{"only read", reflect.TypeFor[[]readsOnly](), "[]"},
		{"written as text, read as JSON", reflect.TypeFor[textToJSON](), "textToJSON"},
		{"pair with pointer receivers in a map", reflect.TypeFor[map[string]pairJSON](), "[]"},
		{"pair of an embedded field", reflect.TypeFor[promoting](), "promoting.Time"},
		{"pair of an embedded field, no name to read by", reflect.TypeFor[struct{ time.Time }](), "struct { time.Time }"},
		{"embedded pointer that cannot be set", reflect.TypeFor[embedPtr](), "embedPtr.base1.ID"},
		{"key that is no name", reflect.TypeFor[map[float64]int](), "[key]"},
		{"key only written", reflect.TypeFor[map[badText]int](), "[key]"},
		{"key only read", reflect.TypeFor[map[readKey]int](), "[key]"},
		{"integer key read as text", reflect.TypeFor[map[readIntKey]int](), "[key]"},
		{"interface as key", reflect.TypeFor[map[any]int](), "[key]"},
		{"no type", nil, "nil"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for range 2 {
				err := CheckResult(tc.typ)
				var fe *FieldError
				if !errors.As(err, &fe) {
					t.Fatalf("got %v, want a *FieldError", err)
				}
				if fe.Path != tc.path || fe.Reason == "" {
					t.Errorf("got %v, want path %s", err, tc.path)
				}
			}
		})
	}
}

// What is accepted does come back.
func TestCheckResultRoundTrip(t *testing.T) {
	yes := true
	in := receipt{
		ID: "r1", At: time.Unix(1, 2).UTC(), Amount: new(big.Int).Lsh(big.NewInt(1), 80), Raw: json.RawMessage(`{"a":1}`),
		Lines: []line{{"é"}}, ByAddr: map[netip.Addr]uint{netip.MustParseAddr("::1"): 1}, Options: map[string]*bool{"x": &yes},
		Blob: []byte{0xff}, Pair: [2]float64{0.1, 2}, Parent: &receipt{ID: "r0", Raw: json.RawMessage(`null`)}, base1: base1{"b", "n"},
	}
	text, err := json.Marshal(&in)
	if err != nil {
		t.Fatal(err)
	}
	var out receipt
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(in, out) {
		t.Errorf("got %+v, want %+v", out, in)
	}
}
