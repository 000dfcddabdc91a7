package agent

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"rutter/log"
)

// filledCache makes a cache of a caught-up replica in a new folder, with enough
// transactions that pages were used again, and returns the file's bytes.
func filledCache(t *testing.T) (folder string, file []byte) {
	t.Helper()
	folder = t.TempDir()
	s := newTestServer(1)
	baseHistory(t, s, 3)
	s.must(t, vmOp(t, 1, 1), nicOp(t, macOf(1), 1, 1, 1, "10.0.0.11"))
	c, r, p := opened(t, folder)
	cursor, scopes := r.resumePoint()
	ss, messages := s.hello(t, r.cn, cursor, scopes)
	deliverAll(t, r, messages)
	for n := range 40 {
		s.must(t, nicOp(t, macOf(20+n), 2, 2, 1, ""))
		deliverAll(t, r, append(ss.next(t, true), ss.bookmark()))
		if err := p.commit(); err != nil {
			t.Fatal(err)
		}
	}
	c.SaveNumbers([]byte(`{}`))
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(filepath.Join(folder, cacheName))
	if err != nil {
		t.Fatal(err)
	}
	// What the file has grown ahead says nothing.
	meta, err := newestMeta(readerOf(bytes.NewReader(file)), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	return folder, file[:meta.Pages*cachePageSize]
}

// contentsText says what a cache holds, for comparing.
func contentsText(held *contents) string {
	var b strings.Builder
	h := held.Head
	fmt.Fprintln(&b, h.CN, h.Cursor, h.Complete, len(held.Scopes), string(held.Numbers))
	enc := log.NewEncoder()
	for _, r := range held.Objects {
		object, err := enc.Object(r.Object)
		fmt.Fprintf(&b, "%v %d %d %x %v\n", keyOf(r), r.Revision, r.Seq, object, err)
	}
	return b.String()
}

// openFile opens a cache with these bytes, without putting it aside.
func openFile(t *testing.T, path string, file []byte) (string, error) {
	t.Helper()
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	c := &cache{path: path, cn: cnID(1), logger: silent(), enc: log.NewEncoder()}
	held, err := c.open()
	if err != nil {
		return "", err
	}
	defer c.db.Close()
	return contentsText(held), nil
}

// TestFlippedBytes: every damage is either found or harmless.
func TestFlippedBytes(t *testing.T) {
	_, file := filledCache(t)
	path := filepath.Join(t.TempDir(), cacheName)
	want, err := openFile(t, path, file)
	if err != nil {
		t.Fatal(err)
	}
	// The page that the newest transaction did not write is the one before it.
	before := ""
	found, harmless := 0, 0
	random := rand.New(rand.NewPCG(1, 2))
	for n := range 1500 {
		at := random.IntN(len(file))
		if n < 200 {
			at = n // the meta pages, where damage is worst
		} else if n < 400 {
			at = cachePageSize + n - 200
		}
		damaged := bytes.Clone(file)
		damaged[at] ^= byte(1 + random.IntN(255))
		got, err := openFile(t, path, damaged)
		switch {
		case errors.Is(err, errFile):
			found++
		case err != nil:
			t.Fatalf("byte %d: an error of another kind: %v", at, err)
		case got == want:
			harmless++
		case at < 2*cachePageSize && (before == "" || before == got):
			before = got // a lost meta page: the state one transaction ago
		default:
			t.Fatalf("byte %d: damage went unnoticed", at)
		}
	}
	t.Logf("%d bytes: found %d, harmless %d", len(file), found, harmless)
	if found == 0 || harmless == 0 {
		t.Error("the test does not reach both outcomes")
	}
}

func TestTruncatedCache(t *testing.T) {
	_, file := filledCache(t)
	path := filepath.Join(t.TempDir(), cacheName)
	want, err := openFile(t, path, file)
	if err != nil {
		t.Fatal(err)
	}
	for size := 0; size < len(file); size += 2039 {
		if got, err := openFile(t, path, file[:size]); err == nil && got != want {
			t.Fatalf("%d of %d bytes: it was not noticed", size, len(file))
		} else if err != nil && !errors.Is(err, errFile) {
			t.Fatalf("%d of %d bytes: %v", size, len(file), err)
		}
	}
}

// TestOldPage: a page of before in the place of a newer one is whole, but wrong.
func TestOldPage(t *testing.T) {
	folder, file := filledCache(t)
	path := filepath.Join(folder, cacheName)
	db, err := bolt.Open(path, 0o600, &boltOptions)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		b := tx.Bucket([]byte(objectBucket(log.KindNIC)))
		k, _ := b.Cursor().First()
		return b.Delete(bytes.Clone(k))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	shorter, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openFile(t, filepath.Join(t.TempDir(), cacheName), shorter); !errors.Is(err, errFile) {
		t.Errorf("a lost row was not noticed: %v (%d and %d bytes)", err, len(file), len(shorter))
	}
}

func TestDamagedCacheIsPutAside(t *testing.T) {
	folder, file := filledCache(t)
	for n := range keptDamaged + 2 {
		damaged := bytes.Clone(file)
		copy(damaged[:2*cachePageSize], make([]byte, 2*cachePageSize))
		if err := os.WriteFile(filepath.Join(folder, cacheName), damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		c, held, err := openCache(folder, cnID(1), time.Unix(int64(n), 0), silent())
		if err != nil {
			t.Fatalf("open %d: %v", n, err)
		}
		if len(held.Objects) != 0 || held.Head.Complete || held.Head.Cursor != (log.Cursor{}) {
			t.Errorf("open %d: got %d objects, complete %v, cursor %v; want nothing", n, len(held.Objects), held.Head.Complete, held.Head.Cursor)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	aside, err := filepath.Glob(filepath.Join(folder, cacheName+".damaged-*"))
	if err != nil || len(aside) != keptDamaged {
		t.Errorf("kept aside: %v (%v), want %d files", aside, err, keptDamaged)
	}
}

func TestCacheOfAnotherNodeIsPutAside(t *testing.T) {
	folder, _ := filledCache(t)
	c, held, err := openCache(folder, cnID(2), time.Unix(1, 0), silent())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if len(held.Objects) != 0 {
		t.Errorf("it holds %d objects of another node", len(held.Objects))
	}
}

func TestOneAgentPerFolder(t *testing.T) {
	folder := t.TempDir()
	c, _, err := openCache(folder, cnID(1), time.Unix(1, 0), silent())
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := openCache(folder, cnID(1), time.Unix(1, 0), silent()); !errors.Is(err, ErrLocked) {
		t.Errorf("a second agent: got %v, want ErrLocked", err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	c, _, err = openCache(folder, cnID(1), time.Unix(1, 0), silent())
	if err != nil {
		t.Fatalf("after the first is closed: %v", err)
	}
	c.Close()
}

func TestIncarnationOnlyGrows(t *testing.T) {
	folder := t.TempDir()
	last := uint64(0)
	for _, now := range []time.Time{time.Unix(100, 0), time.Unix(100, 0), time.Unix(5, 0), time.Unix(200, 0), time.Unix(0, 0)} {
		c, held, err := openCache(folder, cnID(1), now, silent())
		if err != nil {
			t.Fatal(err)
		}
		if held.Head.Incarnation <= last {
			t.Errorf("at %v: incarnation %d after %d", now, held.Head.Incarnation, last)
		}
		last = held.Head.Incarnation
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCopyWhileWriting: a copy of the file, as a crash leaves it, opens as of
// some transaction, with cursor and rows of the same one.
func TestCopyWhileWriting(t *testing.T) {
	folder := t.TempDir()
	s := newTestServer(1)
	baseHistory(t, s, 3)
	c, r, p := opened(t, folder)
	defer c.Close()
	cursor, scopes := r.resumePoint()
	ss, messages := s.hello(t, r.cn, cursor, scopes)
	deliverAll(t, r, messages)
	s.must(t, nicOp(t, macOf(1), 1, 1, 1, ""))
	deliverAll(t, r, append(ss.next(t, true), ss.bookmark()))
	crashed := t.TempDir()
	for n := range 30 {
		s.must(t, nicOp(t, macOf(20+n), 2, 2, 1, ""))
		deliverAll(t, r, append(ss.next(t, true), ss.bookmark()))
		if err := p.commit(); err != nil {
			t.Fatal(err)
		}
		if n%2 == 0 {
			// Applied, but not kept: the copy must not have it.
			s.must(t, update(t, log.KindNetwork, networkID(1).String(), `{"description":"number %d"}`, n))
			deliverAll(t, r, append(ss.next(t, true), ss.bookmark()))
		}
		file, err := os.ReadFile(filepath.Join(folder, cacheName))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(crashed, cacheName), file, 0o600); err != nil {
			t.Fatal(err)
		}
		again, replica, _ := opened(t, crashed)
		cursor, scopes := replica.resumePoint()
		if len(replica.state.Dump()) == 0 || cursor.Seq == 0 {
			t.Fatalf("copy %d is empty", n)
		}
		_, messages := s.hello(t, replica.cn, cursor, scopes)
		deliverAll(t, replica, messages)
		compareReplica(t, s, replica)
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFailingDiskKeepsRows(t *testing.T) {
	s, _, _ := caughtUp(t)
	c, r, p := opened(t, t.TempDir())
	_, messages := s.hello(t, r.cn, log.Cursor{}, nil)
	deliverAll(t, r, messages)
	waiting := r.waiting()
	if err := c.db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.commit(); err == nil || r.waiting() != waiting || p.status().Failure == "" {
		t.Errorf("closed file: error %v, %d rows wait, status %+v; want an error and %d rows", err, r.waiting(), p.status(), waiting)
	}
	db, err := bolt.Open(c.path, 0o600, &boltOptions)
	if err != nil {
		t.Fatal(err)
	}
	c.db = db
	defer c.Close()
	if err := p.commit(); err != nil || r.waiting() != 0 || p.status().Failure != "" {
		t.Errorf("open file: error %v, %d rows wait, status %+v", err, r.waiting(), p.status())
	}
}

func FuzzVerifyFile(f *testing.F) {
	path := filepath.Join(f.TempDir(), cacheName)
	c := &cache{path: path, cn: cnID(1), enc: log.NewEncoder()}
	if err := errors.Join(c.create(&batch{}), c.db.Close()); err != nil {
		f.Fatal(err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	meta, err := newestMeta(readerOf(bytes.NewReader(file)), int64(len(file)))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(file[:meta.Pages*cachePageSize])
	f.Add(file[:2*cachePageSize])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, file []byte) {
		if err := verifyFile(bytes.NewReader(file), int64(len(file))); err != nil {
			return
		}
		// What is said to be whole must open, and be read or refused.
		if _, err := openFile(t, filepath.Join(t.TempDir(), cacheName), file); err != nil && !errors.Is(err, errFile) {
			t.Errorf("a file that was verified: %v", err)
		}
	})
}

func FuzzRows(f *testing.F) {
	f.Add((&head{CN: cnID(1)}).encode())
	f.Add(encodeScope([]byte{1}, heldScope{AsOf: 3, Complete: true}))
	f.Add(encodeMeta(keyNumbers, []byte("{}")))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := decodeHead(b); err == nil && !bytes.Equal(h.encode(), b) {
			t.Errorf("head %x: another after a round trip", b)
		}
		if _, s, err := decodeScope([]byte{1}, b); err == nil && s.Complete == (b[8] == 0) {
			t.Errorf("scope %x: complete %v", b, s.Complete)
		}
		if _, err := decodeMeta(keyNumbers, b); err != nil && !errors.Is(err, errFile) {
			t.Errorf("numbers %x: %v", b, err)
		}
		if _, err := decodeObject("objects/nic", log.KindNIC, []byte("x"), b); err != nil && !errors.Is(err, errFile) {
			t.Errorf("object %x: %v", b, err)
		}
	})
}
