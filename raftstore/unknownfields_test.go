package raftstore

import (
	"bytes"
	"encoding/binary"
	"testing"

	"rutter/log"
)

// lateZeros are the late fields of a kind, unset, as they stand before a newer field.
var lateZeros = map[log.Kind][][]byte{
	log.KindServer:  {{0}, {0}, {0x90}, {0x90}}, // two integers, two lists
	log.KindVM:      {{0xa0}, {0x90}},           // a text, a list
	log.KindNICTag:  {{0xc4, 0}, {0x90}},        // a UUID, a list
	log.KindNetwork: {{0xa0}, {0xc2}, {0xc2}, {0x90}},
	log.KindNIC:     {{0}, {0}, {0x90}, {0x90}},
}

// withUnknown returns o with one more field of n bytes, as a newer program would write it.
// o is of a kind without late fields: the field would take their place.
func withUnknown(t testing.TB, o log.Object, n int) log.Object {
	t.Helper()
	b, err := log.NewEncoder().Object(o)
	if err != nil {
		t.Fatal(err)
	}
	// The format byte, then an array's header: one byte for up to 15 fields, else
	// 0xdc and the number in two.
	fields, rest := uint16(b[1]&0x0f), b[2:]
	if b[1]&0xf0 != 0x90 {
		fields, rest = binary.BigEndian.Uint16(b[2:]), b[4:]
	}
	late := lateZeros[o.Kind()]
	if known := len(o.Kind().FieldsAfter(log.FeatureFirst)); len(late) != known {
		t.Fatalf("a %s has %d late fields, and this test knows %d", o.Kind(), known, len(late))
	}
	out := binary.BigEndian.AppendUint16([]byte{b[0], 0xdc}, fields+uint16(len(late))+1)
	out = append(append(append(out, rest...), bytes.Join(late, nil)...), 0xc6) // bin 32
	out = append(binary.BigEndian.AppendUint32(out, uint32(n)), bytes.Repeat([]byte{1}, n)...)
	with, err := log.DecodeObject(o.Kind(), o.ID(), out)
	if err != nil {
		t.Fatal(err)
	}
	return with
}
