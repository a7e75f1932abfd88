package canon

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"unicode"
)

// FieldError says which part of a Go value or type JSON cannot carry, and why.
type FieldError struct {
	Path   string // from the root type, by Go names, as in Order.Items[].token
	Reason string
}

func (e *FieldError) Error() string { return e.Path + ": " + e.Reason }

// below returns e as seen from one step further out.
func (e *FieldError) below(step string) *FieldError {
	if e == nil {
		return nil
	}
	return &FieldError{step + e.Path, e.Reason}
}

// rooted returns e with its path led by the name of the root type.
func (e *FieldError) rooted(t reflect.Type) *FieldError {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	path := strings.TrimPrefix(t.Name()+e.Path, ".")
	if path == "" {
		path = t.String()
	}
	return &FieldError{path, e.Reason}
}

// form is how encoding/json writes or reads a type.
type form int

const (
	plain   form = iota // by its kind
	viaJSON             // by its own MarshalJSON or UnmarshalJSON
	viaText             // by its own MarshalText or UnmarshalText
)

var (
	jsonMarshaler   = reflect.TypeFor[json.Marshaler]()
	jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()
	textMarshaler   = reflect.TypeFor[encoding.TextMarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// encoded returns how a value of type t is written. A method with a pointer receiver is used only for a value that is
// addressable.
func encoded(t reflect.Type, addressable bool) form {
	has := func(method reflect.Type) bool {
		return t.Implements(method) ||
			addressable && t.Kind() != reflect.Pointer && reflect.PointerTo(t).Implements(method)
	}
	switch {
	case has(jsonMarshaler):
		return viaJSON
	case has(textMarshaler):
		return viaText
	}
	return plain
}

// promoted refuses a struct that may owe one of the given methods to an embedded field: the JSON of
// struct{ time.Time; Amount int } is the time alone. Whether a method is a type's own cannot be told by reflection, so
// a struct that overrides it is refused too.
func promoted(t reflect.Type, methods ...reflect.Type) *FieldError {
	if t.Kind() != reflect.Struct || t.NumField() == 1 {
		return nil
	}
	for i := range t.NumField() {
		f := t.Field(i)
		for _, method := range methods {
			if f.Anonymous && (f.Type.Implements(method) || reflect.PointerTo(f.Type).Implements(method)) {
				return &FieldError{"." + f.Name, fmt.Sprintf(
					"embedded, with a method %s that may stand for the whole struct and hide its other fields; give the field a name",
					method.Method(0).Name)}
			}
		}
	}
	return nil
}

// field is one member of a struct's JSON object.
type field struct {
	path  string // Go names from the struct, each led by a dot
	index []int
	typ   reflect.Type
	// The field stands behind an embedded pointer: it is addressable even where the struct is not. If that pointer's
	// struct type is unexported, encoding/json cannot set it.
	viaPointer, viaUnexported bool
}

type structFields struct {
	fields []field
	hidden *FieldError // a field that is no member
}

var knownFields sync.Map // reflect.Type → structFields

// fieldsOf returns the members of a struct's JSON object, or the first field that it hides.
func fieldsOf(t reflect.Type) ([]field, *FieldError) {
	known, ok := knownFields.Load(t)
	if !ok {
		c := collector{named: map[string]string{}}
		hidden := c.collect(t, field{}, nil)
		known, _ = knownFields.LoadOrStore(t, structFields{c.fields, hidden})
	}
	f := known.(structFields)
	return f.fields, f.hidden
}

type collector struct {
	fields []field
	named  map[string]string // JSON name → path of the field that has it
}

// collect adds the fields of t, which is embedded at base within the structs of outer. Where encoding/json would let one
// field hide another (by depth, by tag, or both gone), it refuses: no case of it leaves all of them in the JSON.
func (c *collector) collect(t reflect.Type, base field, outer []reflect.Type) *FieldError {
	for i := range t.NumField() {
		sf := t.Field(i)
		if sf.Name == "_" {
			continue // holds nothing that code could set
		}
		f := base
		f.path += "." + sf.Name
		f.index = append(base.index[:len(base.index):len(base.index)], i)
		f.typ = sf.Type

		tag := sf.Tag.Get("json")
		if tag == "-" {
			return &FieldError{f.path, `json:"-" keeps it out of the JSON`}
		}
		name, _, _ := strings.Cut(tag, ",")
		if !validName(name) {
			name = ""
		}
		if sf.Anonymous && name == "" {
			embedded, pointer := sf.Type, sf.Type.Kind() == reflect.Pointer
			if pointer {
				embedded = embedded.Elem()
			}
			if embedded.Kind() == reflect.Struct {
				for _, o := range append(outer, t) {
					if o == embedded {
						return &FieldError{f.path, "embeds a struct in itself, so its JSON hides the inner one"}
					}
				}
				f.viaPointer = f.viaPointer || pointer
				f.viaUnexported = f.viaUnexported || pointer && !sf.IsExported()
				if err := c.collect(embedded, f, append(outer, t)); err != nil {
					return err
				}
				continue
			}
		}
		if !sf.IsExported() {
			return &FieldError{f.path, "unexported, so its JSON hides it"}
		}
		if name == "" {
			name = sf.Name
		}
		if other, taken := c.named[name]; taken {
			return &FieldError{f.path, fmt.Sprintf("shares the JSON name %q with %s, so its JSON hides at least one of them", name, other[1:])}
		}
		c.named[name] = f.path
		c.fields = append(c.fields, f)
	}
	return nil
}

// validName reports whether encoding/json uses a name from a tag; it ignores any other.
func validName(name string) bool {
	for _, r := range name {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", r) {
			return false
		}
	}
	return name != ""
}

// integer reports whether k is a kind that may be a map key, written as a number.
func integer(k reflect.Kind) bool { return k >= reflect.Int && k <= reflect.Uintptr }

// noJSON refuses functions, channels, complex numbers and unsafe pointers.
func noJSON(t reflect.Type) *FieldError {
	return &FieldError{"", fmt.Sprintf("%s has no JSON", t)}
}
