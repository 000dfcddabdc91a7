package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"rutter/cmd/rutter/bench"
	"rutter/cmd/rutter/bench/load"
	"rutter/integration/rig"
)

// hostile would do something wherever text is taken for markup.
const hostile = `<img src=x onerror="window.pwned=1"><b id="bold">web</b><script>window.pwned=2</script>`

// unseen would show nothing, or turn and part what stands beside it.
const unseen = "a\u202eb\u2028c\u200bd\x1b[2Je\u009bf\ng"

// Each view shows what the cluster has, in both colours and at two widths, its
// controls have names, and the page complains of nothing.
func TestViews(t *testing.T) {
	b, ctx := browser(t)
	api, server := dev(t, ctx)
	network := first(t, ctx, api, "/networks", url.Values{"fabric": {"true"}})
	for _, c := range []struct{ name, view, shown string }{
		{"overview", "", "document.querySelector('.allwell, .problems') && document.querySelectorAll('.spark').length === 4 && document.querySelector('.fresh.live')"},
		{"cluster", "#/cluster", "document.querySelectorAll('main tbody tr').length === 3 && main.innerText.includes('Leader') && [...document.querySelectorAll('main tbody tr')].every((r) => r.cells[2].innerText === '–' && /^[0-9,]+ entries$/.test(r.cells[4].innerText))"},
		{"log", "#/log", "document.querySelectorAll('.row:not([hidden])').length > 10 && pulse.innerText.startsWith('live')"},
		{"cns", "#/cns", "document.querySelector('canvas').getAttribute('aria-label').startsWith('Map of 2 compute nodes: 2 up to date')"},
		{"vnets", "#/vnets", "document.querySelector('main canvas') && main.innerText.includes('12 links programmed') && document.querySelectorAll('main tbody tr').length === 4"},
		{"objects", "#/objects?kind=nic", "document.querySelectorAll('main tbody tr').length > 3"},
		{"object", "#/object/network/" + fmt.Sprint(network["uuid"]), "document.querySelectorAll('main tbody tr').length > 0 && main.innerText.includes('gateway')"},
	} {
		for _, l := range []struct {
			name          string
			width, height int64
			dark          bool
		}{{"light", 1280, 860, false}, {"dark", 1280, 860, true}, {"phone", 360, 780, false}, {"phone-dark", 360, 780, true}} {
			if err := b.Look(ctx, l.width, l.height, l.dark); err != nil {
				t.Fatal(err)
			}
			open(t, b, ctx, server, c.view)
			await(t, b, ctx, c.shown)
			shot(t, b, ctx, c.name+"-"+l.name)
			if wide := textOf(t, b, ctx, "document.documentElement.scrollWidth - document.documentElement.clientWidth"); wide != "0" {
				t.Errorf("%s, %s: the page is %s px wider than the window", c.name, l.name, wide)
			}
		}
		unnamed, err := b.Unnamed(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(unnamed) > 0 {
			t.Errorf("%s: controls without a name: %v", c.name, unnamed)
		}
		if problems := b.Problems(); len(problems) > 0 {
			t.Errorf("%s: the page complains: %q", c.name, problems)
		}
	}
}

// Kinds without a path of their own have pages too, with their history, and at
// any place of the past.
func TestEveryKindHasPages(t *testing.T) {
	b, ctx := browser(t)
	api, server := dev(t, ctx)
	network := fmt.Sprint(first(t, ctx, api, "/networks", url.Values{"fabric": {"true"}})["uuid"])
	head, err := api.Head(ctx)
	if err != nil {
		t.Fatal(err)
	}
	put(t, ctx, server+"/napi/networks/"+network+"/ips/10.21.12.77", `{"reserved": true}`)
	open(t, b, ctx, server, "#/objects?kind=ip")
	await(t, b, ctx, "[...document.querySelectorAll('main tbody tr')].some((r) => r.innerText.startsWith('10.21.12.77') && r.innerText.includes('true'))")
	shot(t, b, ctx, "objects-ip")
	await(t, b, ctx, "([...document.querySelectorAll('main tbody a')].find((a) => a.innerText === '10.21.12.77').click(), true)")
	await(t, b, ctx, "main.innerText.includes('History, the newest first') && main.innerText.includes('Now')")
	shot(t, b, ctx, "object-ip")
	await(t, b, ctx, fmt.Sprintf("Number(at.max) > %d", head))
	textOf(t, b, ctx, fmt.Sprintf("(at.value = %d, at.dispatchEvent(new Event('input')))", head))
	await(t, b, ctx, "document.querySelector('.time.past') && main.innerText.includes('It was not there then.')")
	for _, problem := range b.Problems() { // the browser tells of the answer that it was not there then
		if !strings.Contains(problem, "404 (Not Found)") {
			t.Errorf("the page complains: %q", problem)
		}
	}
	textOf(t, b, ctx, "now.click()")
	open(t, b, ctx, server, "#/objects")
	kinds := textOf(t, b, ctx, "[...document.querySelectorAll('select[name=kind] option')].map((o) => o.value).join()")
	for kind := range strings.SplitSeq(kinds, ",") {
		open(t, b, ctx, server, "#/objects?kind="+kind)
		await(t, b, ctx, fmt.Sprintf("main.querySelector('caption')?.innerText.startsWith('%s, ')", strings.ReplaceAll(kind, "_", " ")))
	}
	if n := strings.Count(kinds, ",") + 1; n < 15 {
		t.Errorf("%d kinds have lists: %s", n, kinds)
	}
	if problems := b.Problems(); len(problems) > 0 {
		t.Errorf("the page complains: %q", problems)
	}
}

func put(t *testing.T, ctx context.Context, url, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := answer.Body.Close(); err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("PUT %s %s: %s, %v", url, body, answer.Status, err)
	}
}

// What comes from the log stays text, wherever it is shown.
func TestMarkupIsInert(t *testing.T) {
	b, ctx := browser(t)
	api, server := dev(t, ctx)
	vm := first(t, ctx, api, "/vms", nil)
	body, err := json.Marshal(map[string]string{"alias": hostile + unseen})
	if err != nil {
		t.Fatal(err)
	}
	id := fmt.Sprint(vm["uuid"])
	if _, err := api.Update(ctx, "/vms/"+id, body, ""); err != nil {
		t.Fatal(err)
	}
	for _, view := range []string{"#/log?object=" + id, "#/objects?kind=vm", "#/object/vm/" + id} {
		open(t, b, ctx, server, view)
		await(t, b, ctx, `main.innerText.includes('<img src=x onerror="window.pwned=1">')`)
		if view[2] == 'l' {
			await(t, b, ctx, "(document.querySelector('.row').click(), document.querySelector('.detail .new').innerText.includes('<script>'))")
			shot(t, b, ctx, "hostile")
		}
		if got := textOf(t, b, ctx, "[window.pwned, document.getElementById('bold'), main.querySelectorAll('img, script, b').length].join()"); got != ",,0" {
			t.Errorf("%s: markup of an alias came alive: %s", view, got)
		}
		await(t, b, ctx, `main.innerText.includes('a\\u202eb\\u2028c\\u200bd\\u001b[2Je\\u009bf')`)
		if got := textOf(t, b, ctx, `(document.documentElement.outerHTML.match(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069]/g) || []).map((c) => c.codePointAt(0).toString(16)).join()`); got != "" {
			t.Errorf("%s: hidden characters of an alias are in the page: %s", view, got)
		}
	}
	if problems := b.Problems(); len(problems) > 0 {
		t.Errorf("the page complains: %q", problems)
	}
	// And the policy would not have let it: this is what holds if the page errs.
	if got := textOf(t, b, ctx, "(() => { try { main.innerHTML = '<b>x</b>'; return 'taken' } catch (e) { return e.name } })()"); got != "TypeError" {
		t.Errorf("markup as text was %s, want a TypeError of Trusted Types", got)
	}
}

// Everything can be reached by keys alone.
func TestKeys(t *testing.T) {
	b, ctx := browser(t)
	_, server := dev(t, ctx)
	open(t, b, ctx, server, "")
	await(t, b, ctx, "document.querySelector('.allwell, .problems')")
	key := func(keys string) {
		t.Helper()
		if err := b.Do(ctx, chromedp.KeyEvent(keys)); err != nil {
			t.Fatal(err)
		}
	}
	key("2")
	await(t, b, ctx, "document.querySelectorAll('.row:not([hidden])').length > 10")
	key("/")
	await(t, b, ctx, "document.activeElement.id === 'search-text'")
	if err := b.Do(ctx, chromedp.Focus(".loglist")); err != nil {
		t.Fatal(err)
	}
	key("jj")
	await(t, b, ctx, "document.querySelectorAll('.row[aria-selected=true]').length === 1 && document.querySelector('.detail caption').innerText === 'What changed'")
	key("3")
	await(t, b, ctx, "document.querySelector('canvas').getAttribute('aria-label').startsWith('Map of 2')")
	if err := b.Do(ctx, chromedp.Focus("canvas")); err != nil {
		t.Fatal(err)
	}
	key(kb.End)
	await(t, b, ctx, "main.querySelector('.card dl') !== null && main.querySelector('.card').innerText.includes('programmed')")
	shot(t, b, ctx, "cn-chosen")
}

// The slider asks for the past, and its end for the present.
func TestTime(t *testing.T) {
	b, ctx := browser(t)
	api, server := dev(t, ctx)
	network := first(t, ctx, api, "/networks", url.Values{"fabric": {"true"}})
	uuid, before := fmt.Sprint(network["uuid"]), fmt.Sprint(network["name"])
	head, err := api.Head(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := api.Update(ctx, "/networks/"+uuid, []byte(`{"name": "renamed-later"}`), ""); err != nil {
		t.Fatal(err)
	}
	open(t, b, ctx, server, "#/object/network/"+uuid)
	await(t, b, ctx, "main.querySelector('.card').innerText.includes('renamed-later') && Number(at.max) > 0")
	textOf(t, b, ctx, fmt.Sprintf("(at.value = %d, at.dispatchEvent(new Event('input')))", head))
	await(t, b, ctx, fmt.Sprintf("document.querySelector('.time.past') && main.querySelector('.card table') && main.querySelector('.card').innerText.includes('As of') && main.querySelector('.card').innerText.includes(%q) && !main.querySelector('.card').innerText.includes('renamed-later')", before))
	shot(t, b, ctx, "past")
	textOf(t, b, ctx, "now.click()")
	await(t, b, ctx, "!document.querySelector('.time.past') && main.querySelector('.card').innerText.includes('renamed-later')")
}

// The stream loses nothing: not in a burst, and not when its server dies and
// comes back.
func TestNoEntryIsLost(t *testing.T) {
	b, ctx := browser(t)
	c := rig.Cluster(t, bench.Options{Program: rutter})
	w, err := bench.NewWorkload(400)
	if err != nil {
		t.Fatal(err)
	}
	write := func(n uint64) {
		t.Helper()
		got, err := bench.Append(ctx, c, w, 2, false, load.Plan{Writers: 16, Count: n})
		if err != nil || got.Errors > 0 {
			t.Fatal(err, got.FirstError)
		}
	}
	write(1) // a head to begin at
	open(t, b, ctx, c.Servers[0].URL, "#/log")
	await(t, b, ctx, "rutter.counts().received >= 1 && pulse.innerText.startsWith('live')")
	const burst = 5000
	all := func() string {
		t.Helper()
		head, err := c.Client.Head(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("rutter.counts().head === %d && rutter.counts().received === %d && rutter.counts().gaps === 0", head, head)
	}
	write(burst)
	await(t, b, ctx, all())
	if rows := textOf(t, b, ctx, "document.querySelectorAll('.row').length"); len(rows) > 2 {
		t.Errorf("%s rows stand in the page, want a fixed window of less than 100", rows)
	}
	if err := c.Servers[0].Stop(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, b, ctx, "document.querySelector('.pulse.bad') !== null")
	write(500)
	if err := c.Servers[0].Start(); err != nil {
		t.Fatal(err)
	}
	if err := c.AwaitReady(ctx, c.Servers[0]); err != nil {
		t.Fatal(err)
	}
	await(t, b, ctx, all())
	if shown := textOf(t, b, ctx, "main.innerText"); strings.Contains(shown, "gaps") {
		t.Errorf("the page shows gaps: %s", shown)
	}
}

func TestWorkOf(t *testing.T) {
	event := func(name string, ts, dur float64) traceEvent {
		return traceEvent{Name: name, PID: 1, TID: 2, TS: ts, Dur: dur, TDur: dur / 2}
	}
	other := traceEvent{Name: traceTask, PID: 1, TID: 9, TS: 15, Dur: 1e6}
	w, err := workOf([]traceEvent{
		event(traceTask, 0, 500), event(traceTask, 1000, 2000), event(traceFrame, 1100, 700), other, event(traceTask, 4000, 300),
		event(traceTask, 9000, 4000), event(traceFrame, 9100, 10), event(traceTask, 20000, 1000), event(traceFrame, 20001, 10),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []time.Duration{2300 * time.Microsecond, 4 * time.Millisecond}
	if len(w.Updates) != 2 || w.Updates[0] != want[0] || w.Updates[1] != want[1] || P99(w.Updates) != want[1] || w.CPU[1] != 2*time.Millisecond {
		t.Errorf("got %+v, want updates of %v", w, want)
	}
	if _, err := workOf([]traceEvent{event(traceTask, 0, 1)}); err == nil {
		t.Error("a trace without a frame gave no error")
	}
}
