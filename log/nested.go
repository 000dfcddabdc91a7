package log

import (
	"bytes"
	"errors"

	"github.com/vmihailenco/msgpack/v5"
)

// value reads a plain value.
func (v *decoder) value() Value {
	if !v.more() {
		return nil
	}
	raw, err := v.u.skip()
	if err != nil {
		v.fail(err)
		return nil
	}
	if x, ok := simpleValue(raw); ok {
		return x
	}
	// The rest are rare and of any type: the library reads them. It goes down into
	// what is nested by calling itself, so nobody may have it do that for long.
	if !flat(raw) {
		v.fail(errNested)
		return nil
	}
	x, err := msgpack.NewDecoder(bytes.NewReader(raw)).DecodeInterfaceLoose()
	v.fail(err)
	return v.plain(x)
}

var errNested = errors.New("old value with a list inside a list")

// flat reports whether a value is no list or map, or one without such inside.
func flat(raw []byte) bool {
	u := unpacker{raw}
	inside, err := u.skipOne()
	for ; inside > 0 && err == nil; inside-- {
		var more uint64
		if more, err = u.skipOne(); more > 0 {
			return false
		}
	}
	return err == nil
}
