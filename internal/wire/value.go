package wire

import (
	_ "embed" // for the counterpart in JavaScript
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// JavaScript is values.mjs, a module that exports one function: AppendValue and ParseMap for
// programs in JavaScript.
//
//go:embed values.mjs
var JavaScript string

// Bounds of a decoded value. They keep a small message from becoming a large structure.
const (
	MaxDepth  = 8
	MaxValues = 1 << 16
)

// ErrValue says that a payload is not an encoded value.
var ErrValue = errors.New("not a value of the runner protocol")

// Map is the value of most payloads. Its elements are nil, bool, int64, []byte, []any and Map;
// AppendValue takes int and string besides. Its methods return the zero value for a key that is
// missing or of another type: what is required is checked where it is used, and no message is worth
// more than that.
type Map map[string]any

// Int returns an integer.
func (m Map) Int(key string) int64 { v, _ := m[key].(int64); return v }

// Bool returns a truth value.
func (m Map) Bool(key string) bool { v, _ := m[key].(bool); return v }

// Bytes returns bytes. They are part of the payload that was decoded.
func (m Map) Bytes(key string) []byte { v, _ := m[key].([]byte); return v }

// Text returns bytes as a string.
func (m Map) Text(key string) string { return string(m.Bytes(key)) }

// valid returns bytes as text that is valid in UTF-8.
func (m Map) valid(key string) string { return strings.ToValidUTF8(m.Text(key), "\uFFFD") }

// List returns a list.
func (m Map) List(key string) []any { v, _ := m[key].([]any); return v }

// Map returns a map.
func (m Map) Map(key string) Map { v, _ := m[key].(Map); return v }

// AppendValue appends the encoding of v to dst: a letter for the type, then eight bytes of an
// integer, or four bytes of length and that many bytes, values, or pairs of key and value. Keys are
// in byte order. It panics on a type that Map does not name.
func AppendValue(dst []byte, v any) []byte {
	length := func(tag byte, n int) { dst = binary.BigEndian.AppendUint32(append(dst, tag), uint32(n)) }
	switch v := v.(type) {
	case nil:
		dst = append(dst, 'n')
	case bool:
		if v {
			return append(dst, 't')
		}
		dst = append(dst, 'f')
	case int:
		return AppendValue(dst, int64(v))
	case int64:
		dst = binary.BigEndian.AppendUint64(append(dst, 'i'), uint64(v))
	case string:
		length('s', len(v))
		dst = append(dst, v...)
	case []byte:
		length('s', len(v))
		dst = append(dst, v...)
	case []any:
		length('l', len(v))
		for _, x := range v {
			dst = AppendValue(dst, x)
		}
	case Map:
		length('m', len(v))
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			dst = AppendValue(AppendValue(dst, k), v[k])
		}
	default:
		panic(fmt.Sprintf("wire: value of type %T", v))
	}
	return dst
}

// ParseMap decodes a payload that is one map.
func ParseMap(p []byte) (Map, error) {
	v, rest, err := ParseValue(p)
	if err != nil {
		return nil, err
	}
	m, ok := v.(Map)
	if !ok || len(rest) > 0 {
		return nil, fmt.Errorf("%w: want one map", ErrValue)
	}
	return m, nil
}

// ParseValue decodes the value at the beginning of p and returns the rest. The bytes in it are part
// of p.
func ParseValue(p []byte) (v any, rest []byte, err error) {
	d := decoder{p: p, left: MaxValues}
	v = d.value(MaxDepth)
	return v, d.p, d.err
}

type decoder struct {
	p    []byte
	left int // values that may still come
	err  error
}

func (d *decoder) fail(what string) any {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", ErrValue, what)
	}
	d.p = nil
	return nil
}

func (d *decoder) take(n int) []byte {
	if n > len(d.p) {
		d.fail("cut short")
		return nil
	}
	b := d.p[:n:n]
	d.p = d.p[n:]
	return b
}

// count reads the length of a list or map whose elements take at least size bytes each.
func (d *decoder) count(size int) int {
	b := d.take(4)
	if b == nil {
		return 0
	}
	n := binary.BigEndian.Uint32(b)
	if uint64(n)*uint64(size) > uint64(len(d.p)) {
		d.fail("cut short")
		return 0
	}
	return int(n)
}

func (d *decoder) value(depth int) any {
	if d.left--; d.left < 0 || depth < 0 {
		return d.fail("too many or too deep")
	}
	tag := d.take(1)
	if tag == nil {
		return nil
	}
	switch tag[0] {
	case 'n':
		return nil
	case 't', 'f':
		return tag[0] == 't'
	case 'i':
		if b := d.take(8); b != nil {
			return int64(binary.BigEndian.Uint64(b))
		}
		return nil
	case 's':
		return d.take(d.count(1))
	case 'l':
		list := []any{}
		for n := d.count(1); n > 0 && d.err == nil; n-- {
			list = append(list, d.value(depth-1))
		}
		return list
	case 'm':
		m := Map{}
		for n := d.count(6); n > 0 && d.err == nil; n-- {
			k, ok := d.value(0).([]byte)
			if !ok {
				return d.fail("a key is not text")
			}
			if _, twice := m[string(k)]; twice {
				return d.fail("a key comes twice")
			}
			m[string(k)] = d.value(depth - 1)
		}
		return m
	}
	return d.fail(fmt.Sprintf("unknown type %q", tag))
}
