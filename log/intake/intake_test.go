package intake

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rutter/log"
)

var rewrite = flag.Bool("rewrite", false, "write golden files that do not exist yet; existing ones are never changed")

func uuid(b byte) (u log.UUID) {
	for i := range u {
		u[i] = b + byte(i)
	}
	return u
}

func must(t *testing.T, b []byte, err error) []byte {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// examples has one frame of each type.
func examples(t *testing.T) map[string][]byte {
	t.Helper()
	enc := log.NewEncoder()
	change, err := enc.Change(&log.Change{ID: uuid(1), Ops: []log.Op{{Action: log.Delete, Kind: log.KindNICTag, ID: "external"}}})
	change = must(t, change, err)
	result, err := enc.Result(&log.Result{ChangeID: uuid(1), First: 42, Last: 42, Events: 1, IDs: []string{"external"}})
	result = must(t, result, err)
	all := make(map[string][]byte)
	add := func(name string, b []byte, err error) { all[name] = must(t, b, err) }
	b, err := AppendWelcome(nil, Welcome{Leads: true})
	add("welcome", b, err)
	b, err = Append(nil, TypeResult, result)
	add("result", b, err)
	b, err = AppendFailed(nil, Failed{ChangeID: uuid(1), Code: CodeOverloaded, Text: "too many changes are waiting"})
	add("failed", b, err)
	b, err = AppendDrain(nil, "the server stops")
	add("drain", b, err)
	b, err = Append(nil, TypePong, nil)
	add("pong", b, err)
	b, err = Append(nil, TypeChange, change)
	add("change", b, err)
	b, err = Append(nil, TypePing, nil)
	add("ping", b, err)
	return all
}

func TestGolden(t *testing.T) {
	for name, got := range examples(t) {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join("testdata", "golden", name+".v1.hex")
			if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) && *rewrite {
				if err := os.WriteFile(path, []byte(hex.EncodeToString(got)+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			want, err := hex.DecodeString(strings.TrimSpace(string(text)))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("encoded\n got %x\nwant %x", got, want)
			}
			f, err := NewReader(bytes.NewReader(want)).Next()
			if err != nil {
				t.Fatal(err)
			}
			back, err := Append(nil, f.Type, f.Payload)
			if err != nil || !bytes.Equal(back, want) {
				t.Errorf("read and written again\n got %x, %v\nwant %x", back, err, want)
			}
		})
	}
}

func TestMessagesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		failed := Failed{
			ChangeID: log.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id")),
			Code:     Code(rapid.Byte().Draw(t, "code")), Text: rapid.StringN(0, 200, 800).Draw(t, "text"),
		}
		b, err := AppendFailed(nil, failed)
		if err != nil {
			t.Fatal(err)
		}
		f, err := NewReader(bytes.NewReader(b)).Next()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeFailed(f.Payload); err != nil || got != failed {
			t.Fatalf("got %+v, %v, want %+v", got, err, failed)
		}
		welcome := Welcome{rapid.Uint16Min(1).Draw(t, "version"), rapid.Bool().Draw(t, "leads")}
		if b, err = AppendWelcome(nil, welcome); err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeWelcome(append(b[headerSize:], 0xaa)); err != nil || got != welcome {
			t.Fatalf("got %+v, %v, want %+v", got, err, welcome)
		}
	})
}

func TestEveryFlippedBitIsFound(t *testing.T) {
	b := examples(t)["change"]
	for bit := range len(b) * 8 {
		damaged := bytes.Clone(b)
		damaged[bit/8] ^= 1 << (bit % 8)
		f, err := NewReader(bytes.NewReader(damaged)).Next()
		if err == nil {
			t.Fatalf("bit %d flipped: read %v without an error", bit, f.Type)
		}
	}
}

func TestEveryTruncationIsFound(t *testing.T) {
	b := examples(t)["change"]
	for n := range len(b) {
		_, err := NewReader(bytes.NewReader(b[:n])).Next()
		want := io.ErrUnexpectedEOF
		if n == 0 {
			want = io.EOF
		}
		if !errors.Is(err, want) {
			t.Errorf("%d of %d bytes: got %v, want %v", n, len(b), err, want)
		}
	}
}

func TestBounds(t *testing.T) {
	if _, err := Append(nil, TypeChange, make([]byte, MaxPayload+1)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("over MaxPayload: got %v, want ErrTooLarge", err)
	}
	b, err := Append(nil, TypeChange, make([]byte, MaxPayload))
	b = must(t, b, err)
	r := NewReader(bytes.NewReader(append(b, examples(t)["ping"]...)))
	if f, err := r.Next(); err != nil || len(f.Payload) != MaxPayload {
		t.Errorf("MaxPayload: got %d bytes, %v", len(f.Payload), err)
	}
	if _, err := r.Next(); err != nil || cap(r.buf) > keptBuffer {
		t.Errorf("after a large frame: %v, and the reader keeps %d bytes, over %d", err, cap(r.buf), keptBuffer)
	}
	if _, err := NewReader(strings.NewReader("\xff\xff\xff\xff\x40\x00\x00\x00\x00")).Next(); !errors.Is(err, ErrTooLarge) {
		t.Errorf("announced 4 GiB: got %v, want ErrTooLarge", err)
	}
	least := binary.BigEndian.AppendUint32(nil, MaxPayload+1)
	if _, err := NewReader(bytes.NewReader(append(least, 64, 0, 0, 0, 0))).Next(); !errors.Is(err, ErrTooLarge) {
		t.Errorf("announced one byte over MaxPayload: got %v, want ErrTooLarge", err)
	}
	long, err := AppendDrain(nil, strings.Repeat("x", 3*maxText))
	if long = must(t, long, err); len(long) != headerSize+maxText {
		t.Errorf("a long text takes %d bytes, want %d", len(long), headerSize+maxText)
	}
}

func TestShortPayloads(t *testing.T) {
	for _, b := range [][]byte{nil, {0}, {0, 1}, {0, 1, 2}} {
		if _, err := DecodeWelcome(b); !errors.Is(err, ErrFrame) {
			t.Errorf("welcome %x: got %v, want ErrFrame", b, err)
		}
	}
	if _, err := DecodeFailed(make([]byte, 16)); !errors.Is(err, ErrFrame) {
		t.Errorf("failed of 16 bytes: got %v, want ErrFrame", err)
	}
}

func FuzzReader(f *testing.F) {
	for _, path := range []string{"welcome", "result", "failed", "drain", "pong", "change", "ping"} {
		text, err := os.ReadFile(filepath.Join("testdata", "golden", path+".v1.hex"))
		if err != nil {
			f.Fatal(err)
		}
		b, err := hex.DecodeString(strings.TrimSpace(string(text)))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := NewReader(bufio.NewReader(bytes.NewReader(b)))
		for {
			frame, err := r.Next()
			if err != nil {
				return
			}
			// None of these may panic or take more than the frame holds.
			_, _ = DecodeWelcome(frame.Payload)
			_, _ = DecodeFailed(frame.Payload)
			_, _ = log.DecodeChange(frame.Payload)
			_, _ = log.DecodeResult(frame.Payload)
		}
	})
}

func BenchmarkReader(b *testing.B) {
	frame, err := Append(nil, TypeChange, make([]byte, 400))
	if err != nil {
		b.Fatal(err)
	}
	many := bytes.Repeat(frame, 1024)
	source := bytes.NewReader(many)
	r := NewReader(source)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%1024 == 0 {
			source.Reset(many)
		}
		if _, err := r.Next(); err != nil {
			b.Fatal(err)
		}
	}
}

// A failure by a budget says when to send the change again.
func TestFailedOfABudget(t *testing.T) {
	want := Failed{ChangeID: uuid(1), Code: CodeBudget, Text: "the budget cn_operations is used up", After: 4200 * time.Millisecond}
	b, err := AppendFailed(nil, want)
	if err != nil {
		t.Fatal(err)
	}
	f, err := NewReader(bytes.NewReader(b)).Next()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := DecodeFailed(f.Payload); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := DecodeFailed(f.Payload[:19]); err == nil {
		t.Error("a time of two bytes was read")
	}
}
