package console

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"rutter/cmd/rutter/bench"
	"rutter/cmd/rutter/bench/load"
	"rutter/integration/rig"
)

// copied presses the view's "Copy as command", runs what it gives in a shell, with the
// program under test as rutter, and returns what that printed.
func copied(t *testing.T, b *Browser, ctx context.Context) string {
	t.Helper()
	textOf(t, b, ctx, "document.querySelector('button.copy').click()")
	await(t, b, ctx, "document.querySelector('code.command:not([hidden])').innerText.startsWith('rutter ')")
	command := textOf(t, b, ctx, "document.querySelector('code.command').innerText")
	folder := t.TempDir()
	if err := os.Symlink(rutter, filepath.Join(folder, "rutter")); err != nil {
		t.Fatal(err)
	}
	shell := exec.CommandContext(ctx, "sh", "-c", command)
	shell.Env = append(os.Environ(), "PATH="+folder+":"+os.Getenv("PATH"))
	out, err := shell.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", command, err, out)
	}
	return string(out)
}

// The front page says that nothing is wrong, what was written and by whom; then what is
// wrong and what to do. Its command prints the same.
func TestOverview(t *testing.T) {
	b, ctx := browser(t)
	c := rig.Cluster(t, bench.Options{Program: rutter, Servers: 1})
	server := c.Servers[0].URL
	open(t, b, ctx, server, "")
	await(t, b, ctx, "document.querySelector('.allwell') && main.innerText.includes('no compute node yet') && document.querySelector('.fresh.live')")
	shot(t, b, ctx, "overview-empty")
	if _, err := c.Client.Create(ctx, "/nic_tags", []byte(`{"name":"external"}`)); err != nil {
		t.Fatal(err)
	}
	await(t, b, ctx, "[...document.querySelectorAll('main tbody tr')].some((r) => r.innerText.startsWith('nic_tag') && r.cells[1].innerText === '1')")
	if out := copied(t, b, ctx); !strings.Contains(out, "Nothing is wrong.") || !strings.Contains(out, "nic_tag") || !strings.Contains(out, "1 created, 0 updated, 0 deleted") {
		t.Errorf("the command prints otherwise: %s", out)
	}
	// The number leads to the entries that it counts.
	textOf(t, b, ctx, "[...document.querySelectorAll('main tbody tr')].find((r) => r.innerText.startsWith('nic_tag')).cells[1].querySelector('a').click()")
	await(t, b, ctx, "document.querySelectorAll('.row:not([hidden])').length === 1 && document.querySelector('.row').innerText.includes('external') && document.querySelector('select[name=kind]').value === 'nic_tag'")
	// A compute node without an agent needs a look.
	if _, err := c.Client.Create(ctx, "/servers", []byte(`{"uuid":"00000000-0000-4000-8000-0000000000c1","hostname":"cn-lost","status":"unknown"}`)); err != nil {
		t.Fatal(err)
	}
	open(t, b, ctx, server, "")
	await(t, b, ctx, "document.querySelector('.problem.bad')?.innerText.includes('1 compute node without a running agent') && document.querySelector('.problem').innerText.includes('cn-lost') && document.querySelector('.problem .do').innerText.includes('systemctl start rutter-agent')")
	textOf(t, b, ctx, "document.querySelector('.problem .show-id').click()")
	await(t, b, ctx, "document.querySelector('.problem code.id:not([hidden])').innerText === '00000000-0000-4000-8000-0000000000c1'")
	shot(t, b, ctx, "overview-problem")
	if out := copied(t, b, ctx); !strings.Contains(out, "BAD  1 compute node without a running agent") || !strings.Contains(out, "cn-lost") {
		t.Errorf("the command prints otherwise: %s", out)
	}
	// A server that does not answer makes a page that says so.
	if err := c.Servers[0].Stop(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, b, ctx, "!document.querySelector('.fresh.live') && /As of .*not live: /.test(document.querySelector('.fresh').innerText)")
	shot(t, b, ctx, "overview-away")
}

// The search box goes from a name, an alias, an address, an id or a number to the thing,
// and lists candidates if there are several.
func TestSearchBox(t *testing.T) {
	b, ctx := browser(t)
	api, server := dev(t, ctx)
	vm := first(t, ctx, api, "/vms", nil)
	nic := first(t, ctx, api, "/nics", url.Values{"belongs_to_uuid": {fmt.Sprint(vm["uuid"])}})
	network := first(t, ctx, api, "/networks", url.Values{"fabric": {"true"}})
	vnet := fmt.Sprintf("%.0f", network["vnet_id"]) // a number of JSON
	uuid, alias := fmt.Sprint(vm["uuid"]), fmt.Sprint(vm["alias"])
	open(t, b, ctx, server, "")
	await(t, b, ctx, "document.querySelector('.allwell, .problems')")
	type landing struct{ text, at string }
	for _, c := range []landing{
		{uuid, "#/object/vm/" + uuid},
		{fmt.Sprint(nic["mac"]), "#/object/nic/" + url.QueryEscape(fmt.Sprint(nic["mac"]))},
		{fmt.Sprint(network["uuid"]), "#/object/network/" + fmt.Sprint(network["uuid"])},
		{"#3", "#/log?seq=3"},
	} {
		search(t, b, ctx, c.text)
		if err := b.Do(ctx, chromedp.KeyEvent(kb.Enter)); err != nil {
			t.Fatal(err)
		}
		await(t, b, ctx, fmt.Sprintf("location.hash === %q && document.getElementById('found').hidden", c.at))
	}
	for _, c := range []landing{
		{alias, "/object/vm/" + uuid},
		{fmt.Sprint(nic["ip"]), "/object/nic/"},
		{uuid[:8], "/object/vm/" + uuid},
		{fmt.Sprint(network["name"]), "/object/network/" + fmt.Sprint(network["uuid"])},
		{vnet, "/vnets/" + vnet},
	} {
		search(t, b, ctx, c.text)
		await(t, b, ctx, fmt.Sprintf("!document.getElementById('found').hidden && [...document.querySelectorAll('#found li a')].some((a) => a.href.includes(%q))", c.at))
	}
	shot(t, b, ctx, "search")
	search(t, b, ctx, "no-such-thing")
	await(t, b, ctx, "document.getElementById('found').innerText.includes('Nothing has the name')")
	if err := b.Do(ctx, chromedp.KeyEvent(kb.Escape)); err != nil {
		t.Fatal(err)
	}
	await(t, b, ctx, "document.getElementById('found').hidden")
	if problems := b.Problems(); len(problems) > 0 {
		t.Errorf("the page complains: %q", problems)
	}
}

// search writes a text into the search box, by keys alone.
func search(t *testing.T, b *Browser, ctx context.Context, text string) {
	t.Helper()
	textOf(t, b, ctx, "(document.activeElement.blur(), document.getElementById('search-text').value = '')")
	if err := b.Do(ctx, chromedp.KeyEvent("/")); err != nil {
		t.Fatal(err)
	}
	// The page refuses the key; this driver writes it nevertheless.
	await(t, b, ctx, "document.activeElement.id === 'search-text' && (document.activeElement.value = '', true)")
	if err := b.Do(ctx, chromedp.KeyEvent(text)); err != nil {
		t.Fatal(err)
	}
}

// The server answers the filters over the whole log: a rare entry that is 10,000 entries
// back is found, counts say how far was looked, older entries come while one scrolls, and
// the address has the filters.
func TestLogFilters(t *testing.T) {
	b, ctx := browser(t)
	c := rig.Cluster(t, bench.Options{Program: rutter, Servers: 1})
	server := c.Servers[0].URL
	if _, err := c.Client.Create(ctx, "/nic_tags", []byte(`{"name":"needle"}`)); err != nil {
		t.Fatal(err)
	}
	w, err := bench.NewWorkload(400)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := bench.Append(ctx, c, w, 2, false, load.Plan{Writers: 16, Count: 10_000}); err != nil || got.Errors > 0 {
		t.Fatal(err, got.FirstError)
	}
	head, err := c.Client.Head(ctx)
	if err != nil {
		t.Fatal(err)
	}
	open(t, b, ctx, server, "#/log?kind=nic_tag&action=create&text=NEEDLE")
	await(t, b, ctx, "document.querySelectorAll('.row:not([hidden])').length === 1 && document.querySelector('.row').innerText.includes('needle')")
	await(t, b, ctx, fmt.Sprintf("document.getElementById('log-state').innerText.includes('1 entry matches, in the whole log: %s entries were looked at')", grouped(head)))
	shot(t, b, ctx, "log-rare")
	if out := copied(t, b, ctx); strings.Count(out, "\n") != 1 || !strings.Contains(out, `"needle"`) {
		t.Errorf("the command prints otherwise: %s", out)
	}
	// Unfiltered: a page, and more of it while one scrolls.
	open(t, b, ctx, server, "#/log")
	await(t, b, ctx, "document.getElementById('log-state').innerText.includes('200 of them in this list') && document.querySelector('.fresh.live')")
	shot(t, b, ctx, "log-10000")
	out := copied(t, b, ctx)
	if strings.Count(out, "\n") != 200 || !strings.Contains(out, fmt.Sprintf("#%d ", head)) && !strings.Contains(out, fmt.Sprint(head)) {
		t.Errorf("the command prints %d lines, want the 200 of the list: %.300s", strings.Count(out, "\n"), out)
	}
	textOf(t, b, ctx, "document.querySelector('.loglist').scrollTop = 1e6")
	await(t, b, ctx, "(document.querySelector('.loglist').scrollTop += 5000, document.getElementById('log-state').innerText.includes('600 of them in this list'))")
	// A filter that is written is in the address; a wrong one is explained.
	textOf(t, b, ctx, "(() => { const i = document.querySelector('input[name=actor]'); i.value = 'nobody-at-all'; i.dispatchEvent(new Event('input', {bubbles: true})); })()")
	await(t, b, ctx, fmt.Sprintf("location.hash === '#/log?actor=nobody-at-all' && document.getElementById('log-state').innerText.includes('0 entries match, in the whole log: %s')", grouped(head)))
	open(t, b, ctx, server, "#/log?since=yesterday-ish")
	await(t, b, ctx, "document.querySelector('main .notice')?.innerText.includes('since')")
	if problems := b.Problems(); len(problems) > 1 || len(problems) == 1 && !strings.Contains(problems[0], "422") {
		t.Errorf("the page complains: %q", problems)
	}
}

// grouped is a number as the page writes it.
func grouped[N ~uint64](n N) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// The switches change colours and times and are remembered; the skip link leads to the
// content; what has the focus can be seen; nothing moves for who wants no motion.
func TestSwitches(t *testing.T) {
	b, ctx := browser(t)
	_, server := dev(t, ctx)
	open(t, b, ctx, server, "")
	await(t, b, ctx, "document.querySelector('.allwell, .problems')")
	colour := func() string { return textOf(t, b, ctx, "getComputedStyle(document.body).backgroundColor") }
	light := colour()
	textOf(t, b, ctx, "(document.getElementById('theme').click(), document.getElementById('theme').click())")
	await(t, b, ctx, "document.documentElement.dataset.theme === 'dark'")
	if dark := colour(); dark == light {
		t.Errorf("dark is as light: %s", dark)
	}
	textOf(t, b, ctx, "document.getElementById('times').click()")
	await(t, b, ctx, "[...document.querySelectorAll('main time')].every((n) => /^2\\d\\d\\d-.* UTC$/.test(n.innerText)) && main.querySelector('time')")
	open(t, b, ctx, server, "?again")
	await(t, b, ctx, "document.documentElement.dataset.theme === 'dark' && /UTC$/.test(main.querySelector('time')?.innerText)")
	if err := b.Do(ctx, chromedp.KeyEvent(kb.Tab)); err != nil {
		t.Fatal(err)
	}
	await(t, b, ctx, "document.activeElement.className === 'skip' && document.activeElement.getBoundingClientRect().left >= 0 && getComputedStyle(document.activeElement).outlineStyle === 'solid'")
	if err := b.Do(ctx, chromedp.KeyEvent(kb.Enter)); err != nil {
		t.Fatal(err)
	}
	await(t, b, ctx, "document.activeElement.id === 'main'")
}

//go:embed testdata/axe/axe.min.js
var axe string

// axe-core finds nothing serious on any view, in both colours, wide and narrow. Its preload
// would wait 10 s for media on each page: there are none.
func TestAccessible(t *testing.T) {
	b, ctx := browser(t)
	api, server := dev(t, ctx)
	network := first(t, ctx, api, "/networks", url.Values{"fabric": {"true"}})
	for _, c := range []struct{ name, view, shown string }{
		{"overview", "", "document.querySelector('.allwell, .problems') && document.querySelectorAll('.spark').length === 4"},
		{"search", "", "(document.getElementById('search-text').value || (document.getElementById('search-text').value = '1', document.getElementById('search-text').dispatchEvent(new Event('input')))) && document.querySelectorAll('#found a').length > 1"},
		{"log", "#/log", "document.querySelectorAll('.row:not([hidden])').length > 10"},
		{"log-entry", "#/log?seq=3", "document.querySelector('.diff')"},
		{"cluster", "#/cluster", "document.querySelectorAll('main tbody tr').length === 3"},
		{"cns", "#/cns", "document.querySelector('canvas').getAttribute('aria-label').startsWith('Map of 2')"},
		{"vnets", "#/vnets", "document.querySelectorAll('main table').length > 0"},
		{"objects", "#/objects?kind=nic", "document.querySelectorAll('main tbody tr').length > 3"},
		{"object", "#/object/network/" + fmt.Sprint(network["uuid"]), "document.querySelectorAll('main tbody tr').length > 0"},
	} {
		for _, l := range []struct {
			width, height int64
			dark          bool
		}{{1280, 860, false}, {1280, 860, true}, {360, 780, false}, {360, 780, true}} {
			if err := b.Look(ctx, l.width, l.height, l.dark); err != nil {
				t.Fatal(err)
			}
			open(t, b, ctx, server, "?"+fmt.Sprint(c.name, l.width, l.dark)+c.view)
			await(t, b, ctx, c.shown)
			var found []string
			text := textOf(t, b, ctx, "(() => {"+axe+"; return window.axe.run(document, {resultTypes: ['violations'], preload: false}).then((r) => JSON.stringify(r.violations.filter((v) => v.impact === 'serious' || v.impact === 'critical').map((v) => v.id + ': ' + v.nodes.slice(0, 3).map((n) => n.target.join(' ') + ' ' + (n.any[0] || n.all[0] || n.none[0] || {}).message).join(' | '))))})()")
			if err := json.Unmarshal([]byte(text), &found); err != nil {
				t.Fatal(err)
			}
			for _, one := range found {
				t.Errorf("%s, %d px, dark %v: %s", c.name, l.width, l.dark, one)
			}
			if wide := textOf(t, b, ctx, "document.documentElement.scrollWidth - document.documentElement.clientWidth"); wide != "0" {
				t.Errorf("%s, %d px: the page is %s px wider than the window", c.name, l.width, wide)
			}
		}
	}
}

// Fifty consoles cost as much as one: they get the same answer.
func TestOverviewIsShared(t *testing.T) {
	c := rig.Cluster(t, bench.Options{Program: rutter, Servers: 1})
	seen := make(map[string]bool)
	for range 50 {
		r, err := http.Get(c.Servers[0].URL + "/overview")
		if err != nil {
			t.Fatal(err)
		}
		var form struct{ Time string }
		err = json.NewDecoder(r.Body).Decode(&form)
		if _ = r.Body.Close(); err != nil {
			t.Fatal(err)
		}
		seen[form.Time] = true
	}
	if len(seen) > 10 {
		t.Errorf("50 questions had %d answers, want one a second", len(seen))
	}
}
