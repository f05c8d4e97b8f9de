package settings

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/execbroker/execbroker/executor"
)

// Decode is driver.DecodeStrict.
func Decode(raw []byte, v any) error {
	p := reflect.ValueOf(v)
	if p.Kind() != reflect.Pointer || p.IsNil() {
		return fmt.Errorf("decoding into %T, which is not a pointer", v)
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil
	}
	var any json.RawMessage
	if err := json.Unmarshal(raw, &any); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			before := raw[:min(int(syntax.Offset), len(raw))]
			err = fmt.Errorf("line %d: not JSON: %w", 1+bytes.Count(before, []byte("\n")), err)
		}
		return &executor.FieldError{Err: err}
	}
	d := decoder{}
	d.value("", raw, p.Elem())
	return Join(d.errs, d.more)
}

// decoder walks through valid JSON and collects errors.
type decoder struct {
	errs []*executor.FieldError
	more int // beyond MaxErrors
}

func (d *decoder) add(path, field string, err error) {
	if len(d.errs) == MaxErrors {
		d.more++
		return
	}
	d.errs = append(d.errs, &executor.FieldError{Path: path, Field: field, Err: err})
}

func (d *decoder) wrong(path, want string, raw json.RawMessage) {
	d.add(path, "", fmt.Errorf("want %s, got %s", want, kindOf(raw)))
}

// value decodes raw into v, which can be addressed.
func (d *decoder) value(path string, raw json.RawMessage, v reflect.Value) {
	raw = bytes.TrimSpace(raw)
	if string(raw) == "null" {
		return
	}
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		d.value(path, raw, v.Elem())
		return
	}
	var err error
	switch u := v.Addr().Interface().(type) {
	case json.Unmarshaler:
		err = u.UnmarshalJSON(raw)
	case encoding.TextUnmarshaler:
		var s string
		if json.Unmarshal(raw, &s) != nil {
			d.wrong(path, "a string", raw)
			return
		}
		err = u.UnmarshalText([]byte(s))
	default:
		d.plain(path, raw, v)
	}
	d.errs = append(d.errs, errorsAt(path, err)...)
}

// plain decodes into a value whose type has no say in it.
func (d *decoder) plain(path string, raw json.RawMessage, v reflect.Value) {
	switch t := v.Type(); {
	case t.Kind() == reflect.Struct:
		d.object(path, raw, v)
	case t.Kind() == reflect.Map && t.Key().Kind() == reflect.String:
		d.mapping(path, raw, v)
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8: // []byte is base64
		d.list(path, raw, v)
	default:
		if json.Unmarshal(raw, v.Addr().Interface()) != nil {
			d.wrong(path, wanted(t), raw)
		}
	}
}

func (d *decoder) object(path string, raw json.RawMessage, v reflect.Value) {
	fields := Fields(v.Type())
	for m, value := range d.members(path, raw) {
		if f, ok := fields[m]; ok {
			d.value(Member(path, m), value, embedded(v, f.Index))
			continue
		}
		d.add(path, m, Unknown("field", m, slices.Collect(maps.Keys(fields))))
	}
}

func (d *decoder) mapping(path string, raw json.RawMessage, v reflect.Value) {
	t := v.Type()
	if v.IsNil() {
		v.Set(reflect.MakeMap(t))
	}
	for m, value := range d.members(path, raw) {
		e := reflect.New(t.Elem()).Elem()
		d.value(Member(path, m), value, e)
		v.SetMapIndex(reflect.ValueOf(m).Convert(t.Key()), e)
	}
}

func (d *decoder) list(path string, raw json.RawMessage, v reflect.Value) {
	var elems []json.RawMessage
	if json.Unmarshal(raw, &elems) != nil {
		d.wrong(path, "a list", raw)
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(elems), len(elems)))
	for i, e := range elems {
		d.value(fmt.Sprintf("%s[%d]", path, i), e, v.Index(i))
	}
}

// members yields what is in an object, in order, each name once.
func (d *decoder) members(path string, raw json.RawMessage) func(yield func(string, json.RawMessage) bool) {
	return func(yield func(string, json.RawMessage) bool) {
		if raw[0] != '{' {
			d.wrong(path, "an object", raw)
			return
		}
		dec := json.NewDecoder(bytes.NewReader(raw))
		_, _ = dec.Token() // the brace; raw is valid, so nothing here fails
		seen := map[string]bool{}
		for dec.More() {
			t, _ := dec.Token()
			name, _ := t.(string)
			var value json.RawMessage
			if dec.Decode(&value) != nil {
				return
			}
			if seen[name] {
				d.add(path, name, fmt.Errorf("field %s is given twice", quoted(name)))
				continue
			}
			seen[name] = true
			if !yield(name, value) {
				return
			}
		}
	}
}

// Fields returns the fields of a struct by their names in JSON; those of embedded structs are its
// own.
func Fields(t reflect.Type) map[string]reflect.StructField {
	fields := map[string]reflect.StructField{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || f.Tag.Get("json") == "-" || f.Anonymous && name == "" {
			continue
		}
		name = cmp.Or(name, f.Name)
		if other, ok := fields[name]; !ok || len(f.Index) < len(other.Index) { // the outer one hides that of an embedded struct
			fields[name] = f
		}
	}
	return fields
}

// embedded is v.FieldByIndex that makes embedded pointers on the way.
func embedded(v reflect.Value, index []int) reflect.Value {
	for _, i := range index {
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
		v = v.Field(i)
	}
	return v
}

// kindOf names the kind of a JSON value, never the value.
func kindOf(raw json.RawMessage) string {
	names := map[byte]string{'{': "an object", '[': "a list", '"': "a string", 't': "true or false", 'f': "true or false"}
	return cmp.Or(names[raw[0]], "a number")
}

// kinds names what Go types take. All others take an object.
var kinds = map[reflect.Kind]string{
	reflect.Bool: "true or false", reflect.String: "a string", reflect.Slice: "base64 in a string", reflect.Array: "a list",
	reflect.Float32: "a number in range", reflect.Float64: "a number in range",
	reflect.Int: integer, reflect.Int8: integer, reflect.Int16: integer, reflect.Int32: integer, reflect.Int64: integer,
	reflect.Uint: natural, reflect.Uint8: natural, reflect.Uint16: natural, reflect.Uint32: natural, reflect.Uint64: natural,
}

const (
	integer = "a whole number in range"
	natural = "a whole number from 0, in range"
)

// wanted names what a Go type takes.
func wanted(t reflect.Type) string { return cmp.Or(kinds[t.Kind()], "an object") }
