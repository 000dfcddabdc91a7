package log

import (
	"bytes"
	"math"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
	"pgregory.net/rapid"
)

// checkUnpack compares the unpacker with the library on any bytes: what the
// library takes, it takes, with the same value and the same rest; what it takes
// besides is nothing.
func checkUnpack(t interface{ Fatalf(string, ...any) }, b []byte) {
	check := func(what string, ours func(*unpacker) (any, error), theirs func(*msgpack.Decoder) (any, error)) {
		u := unpacker{b}
		r := bytes.NewReader(b)
		x, err := ours(&u)
		y, theirErr := theirs(msgpack.NewDecoder(r))
		if (err == nil) != (theirErr == nil) {
			t.Fatalf("%s of %x: %v, %v; the library: %v, %v", what, b, x, err, y, theirErr)
		}
		if err == nil && (x != y || len(u.b) != r.Len()) {
			t.Fatalf("%s of %x: %v with %d bytes left; the library: %v with %d", what, b, x, len(u.b), y, r.Len())
		}
	}
	check("string", func(u *unpacker) (any, error) { return u.string() }, func(d *msgpack.Decoder) (any, error) { return d.DecodeString() })
	check("bytes", func(u *unpacker) (any, error) { x, err := u.shared(); return string(x), err },
		func(d *msgpack.Decoder) (any, error) { x, err := d.DecodeBytes(); return string(x), err })
	check("bool", func(u *unpacker) (any, error) { return u.bool() }, func(d *msgpack.Decoder) (any, error) { return d.DecodeBool() })
	check("uint64", func(u *unpacker) (any, error) { return u.uint64() }, func(d *msgpack.Decoder) (any, error) { return d.DecodeUint64() })
	check("uint8", func(u *unpacker) (any, error) { return u.uint8() }, func(d *msgpack.Decoder) (any, error) { return d.DecodeUint8() })
	check("int64", func(u *unpacker) (any, error) { return u.int64() }, func(d *msgpack.Decoder) (any, error) { return d.DecodeInt64() })
	check("array", func(u *unpacker) (any, error) { return u.arrayLen() }, func(d *msgpack.Decoder) (any, error) { return d.DecodeArrayLen() })
	check("raw", func(u *unpacker) (any, error) { x, err := u.skip(); return string(x), err },
		func(d *msgpack.Decoder) (any, error) { x, err := d.DecodeRaw(); return string(x), err })
}

func TestUnpackIsTheLibrarysDecoder(t *testing.T) {
	tail := []byte{0, 0, 0, 3, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20}
	for code := range 256 {
		checkUnpack(t, append([]byte{byte(code)}, tail...))
		checkUnpack(t, append([]byte{byte(code), 0x00, 0x00, 0xff, 0xf0}, tail...))
		checkUnpack(t, []byte{byte(code)})
		checkUnpack(t, []byte{byte(code), 2, 0x91, byte(code)})
	}
	checkUnpack(t, nil)
	for _, value := range []any{
		nil, true, "text", string(make([]byte, 300)), []byte("bytes"), uint64(math.MaxUint64), int64(math.MinInt64), -1, -33, -129, 1 << 20, 3.5, float32(1),
		[]any{1, "a", []any{nil, map[string]any{"k": []any{}}}},
		map[string]string{"a": "b"},
	} {
		b, err := msgpack.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		checkUnpack(t, append(b, 0x2a))
		for n := range b {
			checkUnpack(t, b[:n])
		}
	}
}

func TestUnpackAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { checkUnpack(t, rapid.SliceOfN(rapid.Byte(), 0, 64).Draw(t, "bytes")) })
}

// Arrays in arrays take no stack, and an array of billions no memory.
func TestUnpackSkipIsBounded(t *testing.T) {
	u := unpacker{bytes.Repeat([]byte{0x91}, 1<<20)}
	if _, err := u.skip(); err == nil {
		t.Error("a million arrays without an end were taken")
	}
	u = unpacker{bytes.Repeat([]byte{0xdd, 0xff, 0xff, 0xff, 0xff}, 1<<12)}
	if _, err := u.skip(); err == nil {
		t.Error("arrays of billions were taken")
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add([]byte{0x93, 1, 0xa1, 'a', 0xc0})
	f.Add([]byte{0xdf, 0, 0, 0, 1, 0xa1, 'k', 0xc4, 1, 9})
	f.Fuzz(func(t *testing.T, b []byte) { checkUnpack(t, b) })
}
