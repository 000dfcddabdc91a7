package subprocess

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// childEnv makes this test binary a process that starts another one, says which, and
// waits to be killed.
const childEnv = "RUTTER_PROGRAM_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) == "" {
		os.Exit(m.Run())
	}
	cmd := exec.Command("sleep", "600")
	if err := Start(cmd); err != nil {
		fmt.Println(err)
	} else {
		fmt.Println(cmd.Process.Pid)
	}
	select {}
}

// A started program does not outlive the killed process that started it.
func TestEndsWithItsStarter(t *testing.T) {
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childEnv+"=1")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := Start(child); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if killed := child.Process.Kill(); err != nil || killed != nil {
		t.Fatal(err, killed)
	}
	_ = child.Wait() // it was killed
	var pid int
	if _, err := fmt.Sscan(line, &pid); err != nil {
		t.Fatalf("the child says %q", line)
	}
	for end := time.Now().Add(30 * time.Second); runs(pid); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("process %d outlives the one that started it", pid)
		}
	}
}

// runs reports whether a process has not ended. A process that ended and was not waited
// for yet counts as ended.
func runs(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ESRCH) && !strings.Contains(string(stat), ") Z ")
}

// The thread that asks for the start may end before the program.
func TestOutlivesItsThread(t *testing.T) {
	var out strings.Builder
	cmd := exec.Command("sh", "-c", "sleep 0.3 && echo lives")
	cmd.Stdout = &out
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		started <- Start(cmd)
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || out.String() != "lives\n" {
		t.Errorf("the program ends with %v, and says %q", err, out.String())
	}
}
