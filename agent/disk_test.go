package agent

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"rutter/agent/link"
	"rutter/log"
)

// TestCacheIsMadeWholeAgain: whatever happens to the file while the agent runs, the
// agent continues to follow and program, reports the trouble, and saves everything when
// it can.
func TestCacheIsMadeWholeAgain(t *testing.T) {
	for _, test := range []struct {
		name string
		harm func(folder string) error
		mend func(folder string) error // nil: the agent repairs it by itself
	}{
		{"file removed", func(folder string) error { return os.Remove(filepath.Join(folder, cacheName)) }, nil},
		{"folder removed", os.RemoveAll, nil},
		{"file cut", func(folder string) error { return os.Truncate(filepath.Join(folder, cacheName), 2*cachePageSize) }, nil},
		{"folder in the way of nothing", func(folder string) error {
			if err := os.Rename(folder, folder+".away"); err != nil {
				return err
			}
			return os.WriteFile(folder, nil, 0o600)
		}, os.Remove},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t, newCrowd(t))
				defer n.end()
				n.start()
				settle()
				if err := test.harm(n.folder); err != nil {
					t.Fatal(err)
				}
				n.s.change(nicOp(t, macOf(90), 1, 1, 1, ""))
				settle()
				if s := n.agent.Status(); s.Programmed != n.s.head() {
					t.Errorf("programmed %d of %d without its disk", s.Programmed, n.s.head())
				}
				if test.mend != nil {
					s := n.agent.Status()
					if s.Cache.Failure == "" || len(s.Trouble) == 0 || s.Cache.Failures == 0 {
						t.Errorf("it does not say that its cache cannot be written: %+v", s)
					}
					if err := test.mend(n.folder); err != nil {
						t.Fatal(err)
					}
					settle()
				}
				if s := n.agent.Status(); s.Cache.Failure != "" || len(s.Trouble) != 0 {
					t.Errorf("after a minute with its disk: %+v, %v", s.Cache, s.Trouble)
				}
				n.s.change(nicOp(t, macOf(91), 1, 1, 1, ""))
				settle()
				before := n.kernel.String()
				n.stop()
				n.s.setDown(true, "one")
				n.kernel = newNode(t, n.s).kernel
				n.start()
				settle()
				if got := n.kernel.String(); got != before {
					t.Errorf("from its cache the node makes\n%s\nwant\n%s", got, before)
				}
			})
		})
	}
}

// TestHoldOutlivesTheDisk: what is held is on disk again when the folder is back.
func TestHoldOutlivesTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, newCrowd(t))
		defer n.end()
		n.start()
		settle()
		before := n.kernel.String()
		if err := os.RemoveAll(n.folder); err != nil {
			t.Fatal(err)
		}
		n.s.replace(newTestServer(2))
		settle()
		h := n.agent.Status().Hold
		n.stop()
		n.s.setDown(true, "one")
		n.kernel = newNode(t, n.s).kernel
		n.start()
		settle()
		again := n.agent.Status().Hold
		if h == nil || again == nil || again.ID != h.ID || n.kernel.String() != before {
			t.Errorf("held %+v, after a restart %+v, kernel\n%s\nbefore\n%s", h, again, n.kernel, before)
		}
	})
}

// TestOldViewIsUsedWithoutACache: a node that lost the file of the new view continues
// with the old view if it still has that file.
func TestOldViewIsUsedWithoutACache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, newCrowd(t))
		defer n.end()
		n.start()
		settle()
		before := n.kernel.String()
		n.s.replace(newTestServer(2))
		settle()
		n.stop()
		if err := os.WriteFile(filepath.Join(n.folder, cacheName), []byte("damaged"), 0o600); err != nil {
			t.Fatal(err)
		}
		n.kernel = newNode(t, n.s).kernel
		for range 2 {
			n.s.setDown(true, "one")
			n.start()
			settle()
			if n.kernel.String() != before || !n.answers() {
				t.Fatalf("without servers, kernel\n%s\nbefore\n%s", n.kernel, before)
			}
			n.stop()
		}
		n.s.setDown(false, "one")
		n.start()
		settle()
		if n.agent.Status().Hold == nil || n.kernel.String() != before {
			t.Errorf("with the empty cluster: hold %v, kernel\n%s", n.agent.Status().Hold, n.kernel)
		}
	})
}

// TestUnkeptRowsAreBounded: rows that the disk does not accept are dropped in the end,
// and the complete file is written when the disk is back.
func TestUnkeptRowsAreBounded(t *testing.T) {
	s, _, _ := caughtUp(t)
	c, r, p := opened(t, t.TempDir())
	_, messages := s.hello(t, r.cn, log.Cursor{}, nil)
	deliverAll(t, r, messages)
	r.needFullWrite()
	if r.waiting() != 0 {
		t.Errorf("%d rows wait of a view that is to be written whole", r.waiting())
	}
	if err := p.commit(); err != nil {
		t.Fatal(err)
	}
	if due, _ := r.isFullWriteDue(); due || r.waiting() != 0 {
		t.Errorf("due %v, %d rows wait after all was written", due, r.waiting())
	}
	folder := c.folder
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	_, again, _ := opened(t, folder)
	compareReplica(t, s, again)
}

// TestUnjudgedIsNotKept: until a new view was compared with the kernel, the disk has
// the one before. A process that ends in between begins with that one.
func TestUnjudgedIsNotKept(t *testing.T) {
	s, _, _ := caughtUp(t)
	folder := t.TempDir()
	c, r, p := opened(t, folder)
	r.view.share = defaultHoldShare
	_, messages := s.hello(t, r.cn, log.Cursor{}, nil)
	deliverAll(t, r, messages)
	first, _ := r.toJudge()
	r.judge(first, link.Surplus{}, time.Now())
	if err := p.commit(); err != nil {
		t.Fatal(err)
	}
	cursor, scopes := r.resumePoint()
	_, messages = newTestServer(2).hello(t, r.cn, cursor, scopes)
	deliverAll(t, r, messages)
	if err := p.commit(); err != nil || r.objects != 0 {
		t.Fatalf("commit %v, %d objects of an empty log", err, r.objects)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	c, again, _ := opened(t, folder)
	defer c.Close()
	compareReplica(t, s, again)
	if again.cursor != cursor {
		t.Errorf("the cache is at %v, want %v", again.cursor, cursor)
	}
}
