package nlmsg

import (
	"bytes"
	"encoding/binary"
	"testing"
)

func attr(typ uint16, value string) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(AttrHeaderSize+len(value)))
	b = append(binary.NativeEndian.AppendUint16(b, typ), value...)
	return append(b, make([]byte, (4-len(value)%4)%4)...)
}

func TestWalk(t *testing.T) {
	body := append(attr(1, "abc"), attr(2|1<<15, "")...)
	message := binary.NativeEndian.AppendUint32(nil, uint32(HeaderSize+len(body)))
	message = binary.NativeEndian.AppendUint16(message, 20)
	message = binary.NativeEndian.AppendUint16(message, 3)
	message = binary.NativeEndian.AppendUint32(message, 7)
	message = append(append(message, 0, 0, 0, 0), body...)
	h, got, rest, ok := Next(append(bytes.Clone(message), message[:9]...))
	if !ok || h != (Header{Type: 20, Flags: 3, Seq: 7}) || !bytes.Equal(got, body) || len(rest) != 9 {
		t.Fatalf("got %+v, %x, %d bytes more, %v", h, got, len(rest), ok)
	}
	if _, _, _, ok := Next(rest); ok {
		t.Error("a message that is cut was taken")
	}
	var values []string
	Attrs(append(got, 9, 0), func(typ uint16, value []byte) { values = append(values, string(rune('0'+typ))+string(value)) })
	if len(values) != 2 || values[0] != "1abc" || values[1] != "2" {
		t.Errorf("attributes: got %q", values)
	}
}
