package varp

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"testing"

	"rutter/log"
)

// vector is one exchange of testdata/svp-vectors.json, recorded from live programs.
// Normative says for whom it is binding; the file explains the words.
type vector struct {
	Name      string
	Request   string
	Response  string
	Normative string
}

func readVectors(t testing.TB) []vector {
	t.Helper()
	text, err := os.ReadFile("testdata/svp-vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Vectors []vector }
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Vectors) < 30 {
		t.Fatalf("%d vectors, want all of them", len(file.Vectors))
	}
	return file.Vectors
}

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// reencode decodes every message of b and encodes what was understood.
func reencode(b []byte) ([]byte, error) {
	var out []byte
	for len(b) > 0 {
		m, n, err := Split(b, MaxBody)
		if err != nil {
			return out, err
		}
		if n == 0 {
			return out, errors.New("cut off")
		}
		if out, err = reencodeOne(out, m); err != nil {
			return out, err
		}
		b = b[n:]
	}
	return out, nil
}

func reencodeOne(out []byte, m Message) ([]byte, error) {
	switch m.Op {
	case OpPing, OpPong:
		return Append(out, m.Op, m.ID, nil), nil
	case OpVL2Req:
		v, err := ParseVL2Req(m.Body)
		return v.Append(out, m.ID), err
	case OpVL2Ack:
		v, err := ParseVL2Ack(m.Body)
		return v.Append(out, m.ID), err
	case OpVL3Req:
		v, err := ParseVL3Req(m.Body)
		return v.Append(out, m.ID), err
	case OpVL3Ack:
		v, err := ParseVL3Ack(m.Body)
		return v.Append(out, m.ID), err
	case OpLogReq:
		v, err := ParseLogReq(m.Body)
		return v.Append(out, m.ID), err
	case OpLogAck:
		status, records, err := ParseLogAck(m.Body, nil)
		return AppendLogAck(out, m.ID, status, records), err
	case OpLogRM:
		ids, err := ParseLogRM(m.Body, nil)
		return AppendLogRM(out, m.ID, ids), err
	case OpLogRMAck:
		status, err := ParseLogRMAck(m.Body)
		return AppendLogRMAck(out, m.ID, status), err
	case OpShoot:
		v, err := ParseShootdown(m.Body)
		return v.Append(out, m.ID), err
	}
	return out, ErrBadOp
}

// Requests that the codec reads but would write in another way, and why.
var notCanonical = map[string]string{
	"ping-version-7":        "version",
	"ping-with-4-byte-body": "body that is skipped",
	"vl2-hit-dirty-pad":     "padding",
	"vl2-trailing-bytes":    "tail",
}

// Requests that the codec refuses.
var refused = map[string]error{
	"hostile-bad-crc":              ErrBadCRC,
	"hostile-bulk-req":             ErrBadOp,
	"hostile-op99":                 ErrBadOp,
	"hostile-vl2-short":            ErrBadBody,
	"hostile-vl3-short":            ErrBadBody,
	"hostile-logrm-count-ffffffff": ErrBadBody,
	"logrm-count-mismatch":         ErrBadBody,
}

// TestVectorsCodec: each message of each vector decodes and encodes exactly.
func TestVectorsCodec(t *testing.T) {
	for _, v := range readVectors(t) {
		t.Run(v.Name, func(t *testing.T) {
			request := unhex(t, v.Request)
			got, err := reencode(request)
			if want := refused[v.Name]; want != nil {
				if !errors.Is(err, want) {
					t.Fatalf("request: error %v, want %v", err, want)
				}
				return
			}
			if err != nil {
				t.Fatalf("request: %v", err)
			}
			if _, other := notCanonical[v.Name]; !other && !bytes.Equal(got, request) {
				t.Errorf("request:\n got %x\nwant %x", got, request)
			}
			response := unhex(t, v.Response)
			if got, err = reencode(response); err != nil || !bytes.Equal(got, response) {
				t.Errorf("response: error %v\n got %x\nwant %x", err, got, response)
			}
		})
	}
}

// TestVectorsServer: a server with the vectors' fixture answers these bytes.
// "upstream-only" ones cost at most their own connection.
func TestVectorsServer(t *testing.T) {
	_, addr := startServer(t, Config{Lookup: vectorFixture()})
	for _, v := range readVectors(t) {
		t.Run(v.Name, func(t *testing.T) {
			nc := dialTCP(t, addr)
			write(t, nc, unhex(t, v.Request))
			closeWrite(t, nc)
			got := readAll(t, nc)
			if v.Normative == "server" && !bytes.Equal(got, unhex(t, v.Response)) {
				t.Errorf("\n got %x\nwant %s", got, v.Response)
			}
			if refused[v.Name] != nil && len(got) > 0 {
				t.Errorf("answered with %x, want nothing", got)
			}
		})
	}
	nc := dialTCP(t, addr)
	write(t, nc, Append(nil, OpPing, 7, nil))
	if got := readMessage(t, nc); got.Op != OpPong || got.ID != 7 {
		t.Errorf("after all vectors: got %s id %d, want PONG id 7", got.Op, got.ID)
	}
}

// TestVectorsLog serves the vectors' 60 events to its LOG_REQs: the answers
// are upstream's, less what would go beyond the count.
func TestVectorsLog(t *testing.T) {
	events := vectorEvents(t)
	_, addr := startServer(t, Config{Lookup: vectorFixture(), Events: events})
	vectors := map[string]vector{}
	for _, v := range readVectors(t) {
		vectors[v.Name] = v
	}
	for _, c := range []struct {
		name string
		want int // records
	}{
		{"logreq-two", 1},      // upstream: 2, in a body of 80 bytes for a count of 76
		{"logreq-count-75", 1}, // 36 bytes
		{"logreq-count-31", 0},
		{"logreq-empty", 0},
		{"logrm-two", 0},
		{"logrm-again", 0},
		{"logrm-zero", 0},
		{"logreq-1024", 27}, // 1,024 bytes with the status, to the byte
	} {
		nc := dialTCP(t, addr)
		request, _, err := Split(unhex(t, vectors[c.name].Request), MaxBody)
		if err != nil {
			t.Fatal(err)
		}
		write(t, nc, unhex(t, vectors[c.name].Request))
		got := readMessage(t, nc)
		if request.Op == OpLogRM {
			if status, err := ParseLogRMAck(got.Body); status != StatusOK || err != nil {
				t.Errorf("%s: status %s, error %v, want OK", c.name, status, err)
			}
			continue
		}
		status, records, err := ParseLogAck(got.Body, nil)
		if status != StatusOK || err != nil || len(records) != c.want {
			t.Errorf("%s: status %s, %d records, error %v, want OK and %d", c.name, status, len(records), err, c.want)
		}
		req, err := ParseLogReq(request.Body)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Body) > int(req.Count) {
			t.Errorf("%s: body of %d bytes for a count of %d", c.name, len(got.Body), req.Count)
		}
	}
	if want := []log.UUID{eventID(0), eventID(1)}; len(events.removed) != 4 || events.removed[0] != want[0] || events.removed[1] != want[1] {
		t.Errorf("removed %v, want %v twice", events.removed, want)
	}
}
