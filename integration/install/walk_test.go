package install

import (
	"fmt"
	"strings"
	"time"

	"rutter/integration/pages"
)

// walk is the way through the page.
type walk struct {
	*machines
	vm1    string        // process of the first VM
	waited time.Duration // for the blocks of counted sections
}

// check is what a block of the page must have done. To test more of the page, add a block
// to it and a check here.
type check struct {
	section string // heading of the block
	words   string // that the block has; several checks may be about one block
	before  func(w *walk, block pages.Step)
	after   func(w *walk, name, out string) // with what the block printed on the machine
}

// prints is a check that the block printed each of these words.
func prints(section, words string, wants ...string) check {
	return check{section: section, words: words, after: func(w *walk, name, out string) {
		for _, want := range wants {
			if !strings.Contains(out, want) {
				w.t.Errorf("section %q on %s: what the block printed lacks %q", section, name, want)
			}
		}
	}}
}

// checks are those of docs/install.md.
var checks = []check{
	prints("The package", "rutter version", "rutter "+oldVersion),
	{section: "The package", words: "apt-get install", after: nothingStarted},
	prints("Settings of servers", "systemctl status", "active (running)", "Status: \""),
	{section: "Settings of servers", words: "rutter cluster status", after: leads},
	prints("Compute nodes", "systemctl status", "active (running)", "Status: \"follows https://10.0.0."),
	prints("Compute nodes", "rutter cn sessions", "7ed01", "7ed02"),
	prints("Compute nodes", "systemctl status", "Status: \"runs VMs for the agent"),
	prints("Two VMs", "ping", " 0% packet loss"),
	prints("Two VMs", "rutter inventory list", "web1", "web2"),
	{section: "Two VMs", words: "alias=web1", after: helperEnds},
	{section: "Alerts and a dashboard", words: "promtool", before: shorten, after: healthy},
	prints("A node that stops", "rutter cn list\n", "unknown"),
	{section: "A node that stops", words: "AgentDown.*firing", after: shown},
	prints("A node that stops", "ping", " 0% packet loss"),
	{section: "A node that stops", words: "grep firing", after: cleared},
	prints("Backups", "rutter snapshot schedule", "s1", "24h"),
	{section: "Backups", words: "snapshot restore", after: restored},
	prints("Logs and restarts", "StatusText", "servers: s1 s2 s3"),
	prints("Logs and restarts", "RUTTER_LOG_LEVEL", "compute node  564d69b1"),
	{section: "Upgrade", words: "apt-get install", before: writeAlong, after: nothingLost},
	prints("Remove", "apt-get remove", " 0% packet loss", "/var/lib/rutter-agent", "/etc/rutter/rutter.toml"),
	prints("Remove", "apt-get purge", "cannot access '/var/lib/rutter-agent'", "cannot access '/etc/rutter'"),
}

// nothingStarted: the package enables and starts nothing.
func nothingStarted(w *walk, _, _ string) {
	for name := range w.all {
		out, _ := w.sh(name, "systemctl is-enabled rutter-server rutter-agent rutter-vms || true; systemctl is-active rutter-server rutter-agent rutter-vms || true")
		if got := strings.Fields(out); fmt.Sprint(got) != "[disabled disabled disabled inactive inactive inactive]" {
			w.t.Errorf("on %s after the installation: %q", name, got)
		}
	}
}

// leads: of three servers one leads, which systemctl shows too.
func leads(w *walk, _, _ string) {
	var lines []string
	for _, name := range []string{"s1", "s2", "s3"} {
		lines = append(lines, w.must(name, "for i in $(seq 100); do s=$(systemctl show -P StatusText rutter-server); case $s in leads*|follows*) break ;; esac; sleep 0.1; done; echo \"$s\""))
	}
	all := strings.Join(lines, "")
	if strings.Count(all, "leads; servers: s1 s2 s3") != 1 || strings.Count(all, "follows s") != 2 {
		w.t.Errorf("the status lines are:\n%s", all)
	}
}

// writeAlong starts a writer on admin that goes on until nothingLost.
func writeAlong(w *walk, _ pages.Step) {
	w.must("admin", `cat > /root/writer <<'END'
i=0
until [ -e /root/enough ]; do
	i=$((i + 1))
	rutter tag create name=during$i mtu=1500 >/dev/null 2>>/root/refused && echo during$i >>/root/acknowledged
done
touch /root/ended
END
systemd-run --quiet --setenv=RUTTER_CONFIG=/etc/rutter/rutter.toml bash /root/writer
until [ -s /root/acknowledged ]; do sleep 0.1; done`)
}

// nothingLost: what was acknowledged during the upgrade is there, the machines have the new
// version, and the daemons run it.
func nothingLost(w *walk, _, _ string) {
	out := w.must("admin", `touch /root/enough
until [ -e /root/ended ]; do sleep 0.1; done
rutter tag list -o json > /root/tags
while read -r name; do grep -q "\"$name\"" /root/tags || echo "lost: $name"; done < /root/acknowledged
echo "acknowledged: $(wc -l < /root/acknowledged), refused: $(wc -l < /root/refused)"`)
	if strings.Contains(out, "lost:") {
		w.t.Error("writes that were acknowledged during the upgrade are gone")
	}
	for name := range w.all {
		unit := map[byte]string{'s': "rutter-server", 'c': "rutter-agent", 'a': ""}[name[0]]
		if out := w.must(name, "rutter version"); !strings.Contains(out, newVersion) {
			w.t.Errorf("%s has %s", name, out)
		}
		if unit == "" {
			continue
		}
		out := w.must(name, "systemctl is-active "+unit+"; readlink /proc/$(systemctl show -P MainPID "+unit+")/exe")
		if strings.TrimSpace(out) != "active\n/usr/bin/rutter" {
			w.t.Errorf("on %s %s is %s", name, unit, out)
		}
	}
}
