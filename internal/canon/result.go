package canon

import (
	"fmt"
	"reflect"
	"sync"
)

var knownResults sync.Map // reflect.Type → *FieldError

// CheckResult reports whether every value of type t can be stored as JSON and read back whole, provided it is written
// as json.Marshal(&v): through a pointer, so that marshallers with pointer receivers are used. If not, the error is a
// [*FieldError] that names the field.
//
// It refuses unexported and json:"-" fields, fields whose JSON names collide, embedded pointers to unexported structs,
// interfaces, functions, channels, complex numbers, unsafe pointers, and map keys other than strings, integers and
// texts. A type with MarshalJSON needs UnmarshalJSON, one with MarshalText needs UnmarshalText (and the other way
// round); a pair is believed.
//
// A type cannot promise everything: strings with invalid UTF-8 come back changed, NaN is refused when it is written,
// and a nil pointer and a pointer to nil come back as one.
func CheckResult(t reflect.Type) error {
	if t == nil {
		return &FieldError{"nil", "no type to read a result back into"}
	}
	known, ok := knownResults.Load(t)
	if !ok {
		refused := check(t, true, map[place]bool{})
		if refused != nil {
			refused = refused.rooted(t)
		}
		known, _ = knownResults.LoadOrStore(t, refused)
	}
	if refused := known.(*FieldError); refused != nil {
		return refused
	}
	return nil
}

func check(t reflect.Type, addressable bool, seen map[place]bool) *FieldError {
	if seen[place{t, addressable}] {
		return nil
	}
	seen[place{t, addressable}] = true

	// Reading allocates what a pointer points to and looks for methods there, and so does writing, unless nil.
	if t.Kind() == reflect.Pointer {
		return check(t.Elem(), true, seen)
	}
	if t.Kind() == reflect.Interface {
		return &FieldError{"", fmt.Sprintf("%s is an interface, and JSON does not say what it held", t)}
	}
	written, read := encoded(t, addressable), decoded(t)
	if written != read {
		return oneWay(t, written, read)
	}
	switch written {
	case viaJSON, viaText:
		return promoted(t, jsonMarshaler, jsonUnmarshaler, textMarshaler, textUnmarshaler)
	}

	switch t.Kind() {
	case reflect.Slice:
		return check(t.Elem(), true, seen).below("[]")
	case reflect.Array:
		return check(t.Elem(), addressable, seen).below("[]")
	case reflect.Map:
		if err := checkKey(t.Key()); err != nil {
			return err.below("[key]")
		}
		return check(t.Elem(), false, seen).below("[]")
	case reflect.Struct:
		fields, hidden := fieldsOf(t)
		if hidden != nil {
			return hidden
		}
		for _, f := range fields {
			if f.viaUnexported {
				return &FieldError{f.path, "stands behind an embedded pointer to an unexported struct, which JSON cannot set"}
			}
			if err := check(f.typ, addressable || f.viaPointer, seen); err != nil {
				return err.below(f.path)
			}
		}
	case reflect.Func, reflect.Chan, reflect.Complex64, reflect.Complex128, reflect.UnsafePointer:
		return noJSON(t)
	}
	return nil
}

// decoded returns how a value of type t is read. encoding/json looks for methods only on types that have a name.
func decoded(t reflect.Type) form {
	switch p := reflect.PointerTo(t); {
	case t.Name() == "":
		return plain
	case p.Implements(jsonUnmarshaler):
		return viaJSON
	case p.Implements(textUnmarshaler):
		return viaText
	}
	return plain
}

func oneWay(t reflect.Type, written, read form) *FieldError {
	w := [...]string{plain: "by its fields or kind", viaJSON: "by MarshalJSON", viaText: "by MarshalText"}
	r := [...]string{plain: "by its fields or kind", viaJSON: "by UnmarshalJSON", viaText: "by UnmarshalText"}
	return &FieldError{"", fmt.Sprintf("%s is written %s but read %s", t, w[written], r[read])}
}

// checkKey refuses map keys that are not read the way they are written.
func checkKey(t reflect.Type) *FieldError {
	readText := reflect.PointerTo(t).Implements(textUnmarshaler)
	switch {
	case t.Kind() == reflect.String: // written as it is, whatever methods it has
		if readText {
			return oneWay(t, plain, viaText)
		}
	case t.Implements(textMarshaler):
		if !readText {
			return oneWay(t, viaText, plain)
		}
	case !integer(t.Kind()):
		return &FieldError{"", fmt.Sprintf("%s cannot be a member name", t)}
	case readText:
		return oneWay(t, plain, viaText)
	}
	return nil
}
