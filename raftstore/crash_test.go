package raftstore

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"rutter/log"
)

// crashEnv, if set, makes this test binary a store that writes until another process
// kills it: FOLDER ROUND ADDRESS… A crash is only real in a process of its own.
const crashEnv = "RAFTSTORE_CRASH"

// crashChild runs the store of TestCrash and does not return, or returns false.
func crashChild() bool {
	args := strings.Fields(os.Getenv(crashEnv))
	if len(args) == 0 {
		return false
	}
	stores, err := crashStores(args[0], args[2:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, s := range stores {
		go func() {
			err := s.Run(context.Background())
			fmt.Fprintln(os.Stderr, "run:", err)
			os.Exit(1)
		}()
	}
	var mu sync.Mutex
	for w := range 16 {
		go func() {
			for i := 0; ; i++ {
				name := fmt.Sprintf("r%s_%d_%d", args[1], w, i)
				result, err := stores[i%len(stores)].Propose(context.Background(), tagChange(newID(), name))
				if err != nil || result.Refusal != nil {
					continue
				}
				mu.Lock()
				fmt.Println(name, result.First)
				mu.Unlock()
			}
		}()
	}
	select {}
}

// crashStores opens one server for each address.
func crashStores(dir string, addresses []string) ([]*Store, error) {
	var members []Member
	for i, address := range addresses {
		members = append(members, Member{ID: fmt.Sprintf("s%d", i+1), Address: address})
	}
	var stores []*Store
	for _, m := range members {
		cfg := testConfig(nil, m.ID, filepath.Join(dir, m.ID))
		cfg.Logger = slog.New(slog.DiscardHandler)
		cfg.Listen, cfg.InitialMembers = m.Address, members
		cfg.RingEntries = 64 // make it read what it wrote
		s, err := Open(cfg)
		if err != nil {
			return nil, err
		}
		stores = append(stores, s)
	}
	return stores, nil
}

// TestCrash kills a store with SIGKILL at arbitrary moments, over and over in
// one folder. Each time everything that was acknowledged must be there, at its
// seq, once, and the state must be the fold of the log.
func TestCrash(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds long: not in make quick")
	}
	t.Parallel()
	for _, servers := range []int{1, 3} {
		t.Run(fmt.Sprintf("servers=%d", servers), func(t *testing.T) {
			dir := t.TempDir()
			var addresses []string
			for range servers {
				addresses = append(addresses, freeAddress(t))
			}
			acked := make(map[string]log.Result)
			rounds := 5 / servers
			for round := range rounds + 1 {
				crashRound(t, dir, round, addresses, acked)
			}
			stores, err := crashStores(dir, addresses)
			if err != nil {
				t.Fatal(err)
			}
			var nodes []*node
			for _, s := range stores {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				nodes = append(nodes, launch(t, s.cfg))
			}
			checkSame(t, nodes)
			checkAcked(t, nodes[0].Store, acked)
			t.Logf("%d acknowledged changes over %d crashes", len(acked), rounds+1)
		})
	}
}

// crashRound runs a store in a child, kills it after some acknowledgements, and
// adds those to acked.
func crashRound(t *testing.T, dir string, round int, addresses []string, acked map[string]log.Result) {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %s", crashEnv, dir, round, strings.Join(addresses, " ")))
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	wanted := 50 + rand.IntN(1000)
	lines := bufio.NewScanner(out)
	for n := 0; lines.Scan(); n++ {
		var name string
		var seq log.Seq
		if _, err := fmt.Sscan(lines.Text(), &name, &seq); err == nil {
			acked[name] = log.Result{First: seq}
		}
		if n == wanted {
			if err := child.Process.Kill(); err != nil {
				t.Error(err)
			}
		}
	}
	if err := child.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("child: %v, want it killed", err)
	}
}
