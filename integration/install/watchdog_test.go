package install

import (
	"strings"
	"testing"
)

// watchdogSettings are those of a server of one, in place of what the package brings.
const watchdogSettings = `cat > /etc/rutter/rutter.toml <<'END'
[server]
id = "s1"
bootstrap = true
svp = "off"
END
mkdir -p /etc/systemd/system/rutter-server.service.d
printf '[Service]\nWatchdogSec=3\n' > /etc/systemd/system/rutter-server.service.d/test.conf
systemctl daemon-reload
systemctl start rutter-server
`

// awaitText waits until a command's output has some words.
func (m *machines) awaitText(name, command, words string) string {
	m.t.Helper()
	return m.must(name, `for i in $(seq 600); do
	out=$(`+command+` 2>&1 || true)
	case "$out" in *"`+words+`"*) echo "$out"; exit 0 ;; esac
	sleep 0.1
done
echo "$out"
exit 1`)
}

// supervision is what the units do on one machine: the watchdog starts a server again that
// does nothing (stopped by SIGSTOP, as one whose locks are all held), though the program ends
// with 2 then; a panic's end would be the same. Mistakes in settings are told and tried again
// without end and without a flood. A server with wrong settings is started by mended ones.
func supervision(t *testing.T, m *machines, name string) {
	m.must(name, watchdogSettings)
	m.awaitText(name, "systemctl show -P StatusText rutter-server", "leads; servers: s1")
	first := strings.TrimSpace(m.must(name, "systemctl show -P MainPID rutter-server"))
	m.must(name, "kill -STOP "+first)
	m.awaitText(name, "systemctl show -P NRestarts rutter-server", "1")
	m.awaitText(name, "systemctl show -P StatusText rutter-server", "leads; servers: s1")
	if now := strings.TrimSpace(m.must(name, "systemctl show -P MainPID rutter-server")); now == first {
		t.Errorf("process %s was not replaced", first)
	}
	journal := m.must(name, "journalctl --no-pager -o cat -u rutter-server")
	for _, want := range []string{"Watchdog timeout", "goroutine ", "status=2"} {
		if !strings.Contains(journal, want) {
			t.Errorf("the journal lacks %q", want)
		}
	}
	m.must(name, "systemctl stop rutter-server && [ $(systemctl show -P Result rutter-server) = success ]")

	// An agent without its UUID: the first start fails at once, and says why.
	out := m.must(name, `printf '[agent]\nservers = ["http://127.0.0.1:7420"]\n' > /etc/rutter/rutter.toml
if timeout 20 systemctl start rutter-agent; then exit 1; fi
systemctl show -P NRestarts rutter-agent`)
	m.awaitText(name, "systemctl status --no-pager rutter-agent", "cannot start: --cn is missing")
	if state := m.must(name, "systemctl show -P SubState rutter-agent"); strings.Contains(state, "failed") {
		t.Errorf("the agent was given up: %s, after %s", state, out)
	}
	tries := m.must(name, "sleep 4; journalctl --no-pager -o cat -u rutter-agent | grep -c 'rutter: --cn is missing'")
	if n := strings.TrimSpace(tries); n != "1" && n != "2" {
		t.Errorf("within 4 s it tried and logged %s times, want twice, and then each half a minute", n)
	}
	m.must(name, `sed -i '1a cn = "564d69b1-a178-4fbe-b36f-3f2b7fd7ed01"' /etc/rutter/rutter.toml && timeout 60 systemctl restart rutter-agent`)
	m.awaitText(name, "systemctl show -P StatusText rutter-agent", "waits for a server, and has no cache to go on from")
	m.must(name, "systemctl stop rutter-agent")
}
