package sessions

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// Schema is the version of the records that this program writes to a Store, in the field "v" of
// each. A record without that field has version 1.
//
// A new version is needed only if a program that ignores a new field, and writes it back as it was,
// would misunderstand the record or make it wrong. All other fields are added without one.
const Schema = 1

// SchemaError says that a later program wrote a record. It is neither used nor changed.
type SchemaError struct {
	Schema int // of the record
}

func (e *SchemaError) Error() string {
	return fmt.Sprintf("a later version of this program wrote it: it has schema %d, and this program knows schemas up to %d; use that version, or wait until the record has expired",
		e.Schema, Schema)
}

// Decode reads the record in e.Value, which is JSON, into a pointer to a struct. It fails with a
// SchemaError if a later program wrote it.
func (e Entry) Decode(record any) error { return e.DecodeForUpdate(record) }

// DecodeForUpdate is Decode for a record that will be written again. It empties e.Value unless the
// record has fields that the struct does not know: Encode then has none to look for, which takes
// longer than all the rest.
func (e *Entry) DecodeForUpdate(record any) error {
	if fields, ok := bytes.CutPrefix(e.Value, versioned); ok && bytes.HasPrefix(fields, []byte(`"`)) {
		d := json.NewDecoder(io.MultiReader(strings.NewReader("{"), bytes.NewReader(fields)))
		d.DisallowUnknownFields()
		if d.Decode(record) == nil && d.InputOffset() == int64(len("{")+len(fields)) {
			e.Value = nil
			return nil
		}
	}
	var version struct {
		V int `json:"v"`
	}
	err := json.Unmarshal(e.Value, &version)
	if err == nil && version.V > Schema {
		return &SchemaError{version.V}
	}
	return errors.Join(err, json.Unmarshal(e.Value, record))
}

// versioned is how a record of this program begins, if it has fields.
var versioned = fmt.Appendf(nil, `{"v":%d,`, Schema)

// Encode replaces e.Value, which is empty or has an earlier state of the same record, by that of a
// struct. Fields that the earlier state has and the struct does not know are kept, also in the
// structs and maps in it. An element of a slice keeps them if nothing else of it has changed.
func (e *Entry) Encode(record any) error {
	next, err := json.Marshal(record)
	if err != nil {
		return err
	}
	if len(e.Value) > 0 {
		next = merge(reflect.Indirect(reflect.ValueOf(record)).Type(), e.Value, next)
		fields := map[string]json.RawMessage{}
		if err := json.Unmarshal(next, &fields); err != nil {
			return err
		}
		delete(fields, "v")
		if next, err = json.Marshal(fields); err != nil {
			return err
		}
	}
	fields, ok := bytes.CutPrefix(next, []byte("{"))
	if !ok {
		return fmt.Errorf("a record is a struct, and not %.20s", next)
	}
	e.Value = append(slices.Clone(versioned), fields...)
	if bytes.Equal(fields, []byte("}")) {
		e.Value = fmt.Appendf(nil, `{"v":%d}`, Schema)
	}
	return nil
}

var (
	asJSON = reflect.TypeFor[json.Marshaler]()
	asText = reflect.TypeFor[encoding.TextMarshaler]()
)

// keepUnknown adds to next, the JSON of a value of type t, the fields of old that t does not know.
// Few records have any, and to find that out takes much less than to look for them.
func keepUnknown(t reflect.Type, old, next json.RawMessage) json.RawMessage {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map, reflect.Slice, reflect.Array:
	default:
		return next
	}
	d := json.NewDecoder(bytes.NewReader(old))
	d.DisallowUnknownFields()
	if d.Decode(reflect.New(t).Interface()) == nil {
		return next
	}
	return merge(t, old, next)
}

// merge is keepUnknown for a value that may have such fields. t is no pointer.
func merge(t reflect.Type, old, next json.RawMessage) json.RawMessage {
	var known func(string) (reflect.Type, bool)
	switch p := reflect.PointerTo(t); {
	case p.Implements(asJSON) || p.Implements(asText):
		return next
	case t.Kind() == reflect.Struct:
		known = func(name string) (reflect.Type, bool) { return field(t, name) }
	case t.Kind() == reflect.Slice || t.Kind() == reflect.Array:
		return keepElements(t.Elem(), old, next)
	case t.Kind() == reflect.Map: // one that is not in next has been removed
		known = func(string) (reflect.Type, bool) { return t.Elem(), true }
	default:
		return next
	}
	var from, to map[string]json.RawMessage
	if json.Unmarshal(old, &from) != nil || json.Unmarshal(next, &to) != nil || to == nil {
		return next
	}
	for name, was := range from {
		inner, is := known(name)
		if !is {
			to[name] = was
		} else if now, there := to[name]; there {
			to[name] = keepUnknown(inner, was, now)
		}
	}
	merged, err := json.Marshal(to)
	if err != nil { // cannot be: all of it was JSON
		return next
	}
	return merged
}

// keepElements does the same for lists of values of type t. Elements have no names, so one of old
// is only that of next which says the same otherwise.
func keepElements(t reflect.Type, old, next json.RawMessage) json.RawMessage {
	var from, to []json.RawMessage
	if json.Unmarshal(old, &from) != nil || json.Unmarshal(next, &to) != nil {
		return next
	}
	was := map[string]json.RawMessage{}
	for _, e := range from {
		v := reflect.New(t)
		if json.Unmarshal(e, v.Interface()) != nil {
			continue
		}
		if known, err := json.Marshal(v.Interface()); err == nil {
			was[string(known)] = e
		}
	}
	for i, e := range to {
		if before, there := was[string(e)]; there {
			to[i] = keepUnknown(t, before, e)
		}
	}
	merged, err := json.Marshal(to)
	if err != nil || to == nil { // null stays null
		return next
	}
	return merged
}

// structs has the fields of struct types, by type.
var structs sync.Map

// field returns the type of the field that package json stores under a name, in any case of its
// letters.
func field(t reflect.Type, name string) (reflect.Type, bool) {
	known, there := structs.Load(t)
	if !there {
		known, _ = structs.LoadOrStore(t, fieldsOf(t))
	}
	for _, f := range known.([]reflect.StructField) {
		if strings.EqualFold(f.Name, name) {
			return f.Type, true
		}
	}
	return nil, false
}

// fieldsOf returns the fields of a struct that package json stores, with the names that it gives
// them.
func fieldsOf(t reflect.Type) (all []reflect.StructField) {
	for _, f := range reflect.VisibleFields(t) {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || f.Anonymous && tag == "" || tag == "-" {
			continue
		}
		f.Name = cmp.Or(tag, f.Name)
		all = append(all, f)
	}
	return all
}
