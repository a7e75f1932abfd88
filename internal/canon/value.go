package canon

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"sync"
	"unicode/utf8"
)

// maxWalk bounds the walk through a value. Marshal has refused cycles by then, except one that an IsZero method hides
// from it.
const maxWalk = 10_000

// Value returns the fingerprint of a Go value: that of the JSON text json.Marshal makes of it, nil being null. The Go
// type is not part of it, and values that differ only in what JSON does not tell apart (a nil pointer and a pointer to
// nil) share it.
//
// A value whose JSON hides something is refused with a [*FieldError] that names the field: unexported fields, json:"-",
// fields whose JSON names collide, a struct whose marshaller may be an embedded field's, map keys that become one, and
// strings with invalid UTF-8. A type with MarshalJSON or MarshalText speaks for itself, as does an IsZero method under
// omitzero. What Marshal refuses (NaN, cycles) is returned with its error wrapped.
func Value(v any) ([32]byte, error) {
	if v == nil {
		return null, nil
	}
	t := reflect.TypeOf(v)
	if refused := planOf(t, false).refused; refused != nil {
		return [32]byte{}, refused.rooted(t)
	}
	text, err := json.Marshal(v)
	if err != nil {
		return [32]byte{}, fmt.Errorf("payload as JSON: %w", err)
	}
	if refused := walk(reflect.ValueOf(v), 0); refused != nil {
		return [32]byte{}, refused.rooted(t)
	}
	return JSON(text), nil
}

var null = JSON([]byte("null"))

// plan is what a type alone tells about its values.
type plan struct {
	refused *FieldError // no value's JSON is whole
	walk    bool        // each value must be looked at: it may hold strings, interfaces or texts
}

var plans [2]sync.Map // reflect.Type → plan; the second for addressable values

func planOf(t reflect.Type, addressable bool) plan {
	known := &plans[0]
	if addressable {
		known = &plans[1]
	}
	if p, ok := known.Load(t); ok {
		return p.(plan)
	}
	i := inspection{seen: map[place]bool{}}
	refused := i.inspect(t, addressable) // in its own statement: it sets i.walk
	p := plan{refused, i.walk}
	known.Store(t, p)
	return p
}

// place is a type as it occurs: in an addressable value or not.
type place struct {
	typ         reflect.Type
	addressable bool
}

// inspection visits all types that can be reached from one without a value, each once.
type inspection struct {
	seen map[place]bool
	walk bool
}

func (i *inspection) inspect(t reflect.Type, addressable bool) *FieldError {
	if i.seen[place{t, addressable}] {
		return nil
	}
	i.seen[place{t, addressable}] = true

	switch t.Kind() {
	case reflect.Pointer:
		return i.inspect(t.Elem(), true) // its methods are those of what it points to
	case reflect.Interface:
		i.walk = true // even one with MarshalJSON: what it holds may have it from an embedded field
		return nil
	}
	switch encoded(t, addressable) {
	case viaJSON:
		return promoted(t, jsonMarshaler, textMarshaler)
	case viaText:
		i.walk = true
		return promoted(t, jsonMarshaler, textMarshaler)
	}
	switch t.Kind() {
	case reflect.String:
		i.walk = true
	case reflect.Slice:
		return i.inspect(t.Elem(), true).below("[]")
	case reflect.Array:
		return i.inspect(t.Elem(), addressable).below("[]")
	case reflect.Map:
		key := t.Key()
		if key.Kind() == reflect.String || key.Implements(textMarshaler) {
			i.walk = true
		} else if !integer(key.Kind()) {
			return &FieldError{"[key]", fmt.Sprintf("%s cannot be a member name", key)}
		}
		return i.inspect(t.Elem(), false).below("[]")
	case reflect.Struct:
		fields, hidden := fieldsOf(t)
		if hidden != nil {
			return hidden
		}
		for _, f := range fields {
			if err := i.inspect(f.typ, addressable || f.viaPointer); err != nil {
				return err.below(f.path)
			}
		}
	case reflect.Func, reflect.Chan, reflect.Complex64, reflect.Complex128, reflect.UnsafePointer:
		return noJSON(t)
	}
	return nil
}

// walk looks for what a value, rather than its type, hides. It goes where Marshal goes.
func walk(v reflect.Value, depth int) *FieldError {
	t := v.Type()
	p := planOf(t, v.CanAddr())
	if p.refused != nil || !p.walk {
		return p.refused
	}
	if depth == maxWalk {
		return &FieldError{"", fmt.Sprintf("nested deeper than %d", maxWalk)}
	}
	depth++
	switch t.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return walk(v.Elem(), depth)
	case reflect.Interface:
		if v.IsNil() {
			return nil
		}
		if err := walk(v.Elem(), depth); err != nil {
			return err.below(".(" + v.Elem().Type().String() + ")")
		}
		// An interface with MarshalText is asked for its text, below, even if what it holds has MarshalJSON.
	}
	if encoded(t, v.CanAddr()) == viaText {
		_, err := textOf(v)
		return err
	}
	switch t.Kind() {
	case reflect.String:
		return validText(v.String())
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if err := walk(v.Index(i), depth); err != nil {
				return err.below("[]")
			}
		}
	case reflect.Map:
		return walkMap(v, depth)
	case reflect.Struct:
		fields, _ := fieldsOf(t)
		for _, f := range fields {
			fv, err := v.FieldByIndexErr(f.index)
			if err != nil {
				continue // behind an embedded pointer that is nil
			}
			if err := walk(fv, depth); err != nil {
				return err.below(f.path)
			}
		}
	}
	return nil
}

func walkMap(v reflect.Value, depth int) *FieldError {
	// Marshal uses keys of string kind as they are, whatever methods they have.
	isString := v.Type().Key().Kind() == reflect.String
	names := map[string]bool{}
	for entries := v.MapRange(); entries.Next(); {
		key := entries.Key()
		switch {
		case isString:
			if err := validText(key.String()); err != nil {
				return err.below("[key]")
			}
		case !integer(key.Kind()) || key.Type().Implements(textMarshaler):
			name, err := textOf(key)
			if err != nil {
				return err.below("[key]")
			}
			if names[name] {
				return &FieldError{"[key]", fmt.Sprintf("two keys with the text %q", name)}
			}
			names[name] = true
		}
		if err := walk(entries.Value(), depth); err != nil {
			return err.below("[]")
		}
	}
	return nil
}

// textOf returns what v's MarshalText says. A nil pointer as map key is the empty text.
func textOf(v reflect.Value) (string, *FieldError) {
	if v.Kind() == reflect.Pointer && v.IsNil() {
		return "", nil
	}
	m, ok := v.Interface().(encoding.TextMarshaler)
	if !ok {
		m = v.Addr().Interface().(encoding.TextMarshaler)
	}
	text, err := m.MarshalText()
	if err != nil {
		return "", &FieldError{"", err.Error()}
	}
	return string(text), validText(string(text))
}

// validText refuses what Marshal would change.
func validText(s string) *FieldError {
	if !utf8.ValidString(s) {
		return &FieldError{"", "holds invalid UTF-8, which JSON would replace"}
	}
	return nil
}
