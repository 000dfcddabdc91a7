package log

import (
	"bytes"
	"errors"
	"testing"
)

// Values inside values, as deep as an event is long: a function that reads them by
// calling itself would need more stack than there may be.
func TestNestedValuesAreRefused(t *testing.T) {
	event := exampleEvents()["nic"]
	event.Changed = []FieldChange{{Path: "x", Old: []string{"y"}}}
	b, err := NewEncoder().Event(event)
	if err != nil {
		t.Fatal(err)
	}
	value := []byte{0x91, 0xa1, 'y'} // a list of one text
	at := bytes.LastIndex(b, value)
	if at < 0 {
		t.Fatalf("the value is not in %x", b)
	}
	for _, nest := range [][]byte{{0x91}, {0xdc, 0, 1}, {0x81, 0xa1, 'k'}} {
		bomb := append(bytes.Clone(b[:at]), bytes.Repeat(nest, 300_000)...)
		bomb = append(append(bomb, value...), b[at+len(value):]...)
		if _, err := DecodeEvent(bomb); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%x repeated: got %v, want %v", nest, err, ErrCorrupt)
		}
	}
}
