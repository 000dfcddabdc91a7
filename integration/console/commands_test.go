package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"rutter/api/client"
)

// shownBy is a view, and what it shows that its command must print.
type shownBy struct {
	view  string
	at    int    // the entry that is looked at; 0: now
	ready string // what is true when it shows it
	texts string // a list of texts
	exact string // if not "": how many lines the command prints, a header left out
}

// entryLine begins an entry, as text or as a line of JSON.
var entryLine = regexp.MustCompile(`(?m)^(?:\d{4}-\d\d-\d\dT\S+ #(\d+) |\{.*?"seq":"?(\d+))`)

// ids are the ids of the rows of the first table of a page.
const ids = "[...main.querySelectorAll('table')[0].querySelectorAll('tbody tr')].map((r) => r.cells[0].querySelector('[title]').title)"

// Each view's command, run in a shell, prints what the view shows: of each kind of object,
// filtered or not, now and in the past, and with each filter of the log.
func TestCommandsOfEveryView(t *testing.T) {
	b, ctx := browser(t)
	api, server := dev(t, ctx)
	network := first(t, ctx, api, "/networks", url.Values{"name": {"blue"}})
	nics, err := api.List(ctx, "/nics", url.Values{"network_uuid": {fmt.Sprint(network["uuid"])}, "belongs_to_type": {"zone"}})
	if err != nil || len(nics) < 2 {
		t.Fatal(len(nics), err)
	}
	for range 2 {
		if _, err := api.Create(ctx, "/nic_tags", []byte(`{"name":"sdc_underlay"}`)); err == nil {
			t.Fatal("want a refusal that the front page counts")
		}
	}
	head, err := api.Head(ctx)
	if err != nil {
		t.Fatal(err)
	}
	past := int(head) - 3
	for _, v := range viewsOf(api, t, ctx, network, nics, past) {
		look(t, b, ctx, server, v)
	}
	if problems := b.Problems(); len(problems) > 0 {
		t.Errorf("the page complains: %q", problems)
	}
}

// viewsOf are the views of a world.
func viewsOf(api *client.Client, t *testing.T, ctx context.Context, network client.Object, nics []client.Object, past int) (all []shownBy) {
	t.Helper()
	uuid, vnet, nic := fmt.Sprint(network["uuid"]), fmt.Sprintf("%.0f", network["vnet_id"]), nics[0]
	cn, mac, vm := fmt.Sprint(nic["cn_uuid"]), fmt.Sprint(nic["mac"]), fmt.Sprint(nic["belongs_to_uuid"])
	rows := "main.querySelectorAll('tbody tr').length > 0"
	all = []shownBy{
		{view: "#/", ready: rows, texts: "[...main.querySelectorAll('tbody tr')].map((r) => r.cells[0].innerText)"},
		{view: "#/cluster", ready: rows, texts: "[...main.querySelectorAll('tbody tr')].map((r) => r.cells[0].innerText)"},
		{view: "#/cns", ready: "document.querySelector('canvas').getAttribute('aria-label').startsWith('Map of 2')", texts: "['cn1', 'cn2']"},
		{view: "#/cns/" + cn, ready: "main.innerText.includes('connected')", texts: fmt.Sprintf("[%q, 'programmed', 'lag_ms']", cn)},
		{view: "#/cns/" + cn, at: past, ready: "main.innerText.includes('In the log')", texts: fmt.Sprintf("[%q]", cn)},
		{view: "#/vnets/" + vnet, ready: rows, texts: "['on 2 compute nodes', 'cn1', 'cn2', 'blue']"},
		{view: "#/vnets/" + vnet, at: past, ready: rows, texts: "[" + strings.Trim(strings.Join(macsOf(nics), ","), ",") + "]"},
	}
	for _, kind := range []string{"nic_tag", "network", "nic", "server", "vm"} {
		list := shownBy{view: "#/objects?kind=" + kind, ready: rows, texts: ids, exact: "main.querySelectorAll('table')[0].querySelectorAll('tbody tr').length"}
		all = append(all, list)
		list.at = past
		all = append(all, list)
	}
	filtered := shownBy{view: "#/objects?kind=nic&network_uuid=" + uuid, ready: rows, texts: ids, exact: "main.querySelectorAll('table')[0].querySelectorAll('tbody tr').length"}
	all = append(all, filtered)
	filtered.at = past
	all = append(all, filtered)
	for _, object := range []string{"network/" + uuid, "nic/" + url.PathEscape(mac), "vm/" + vm, "server/" + cn} {
		_, id, _ := strings.Cut(object, "/")
		id, _ = url.PathUnescape(id)
		all = append(all, shownBy{view: "#/object/" + object, ready: "main.innerText.includes('History, the newest first')", texts: fmt.Sprintf("[%q]", id)})
	}
	found := "/^[1-9][0-9,]* entr/.test(document.getElementById('log-state').innerText) && document.getElementById('log-state').innerText.includes('in the whole log')"
	for _, filter := range []string{
		"kind=nic", "action=create", "object=" + url.QueryEscape(mac), "cn=" + cn, "vnet=" + vnet, "network=" + uuid, "owner=" + fmt.Sprint(network["owner_uuids"].([]any)[0]), "ip=" + fmt.Sprint(nic["ip"]),
		"actor=" + url.QueryEscape("anonymous@127.0.0.1"), "path=status", "since=1h", "until=20", "text=blue", "text=" + url.QueryEscape("BLUE") + "&kind=vm", "since=1h&kind=network",
	} {
		all = append(all, shownBy{view: "#/log?" + filter, ready: found, texts: "[]", exact: "document.getElementById('log-state').innerText.split(' ')[0].replaceAll(',', '')"})
	}
	return append(all, shownBy{view: "#/log", at: past, ready: "document.querySelector('.row:not([hidden])')", texts: fmt.Sprintf("['%d']", past), exact: fmt.Sprint("'", past, "'")})
}

func macsOf(nics []client.Object) (all []string) {
	for _, nic := range nics {
		all = append(all, fmt.Sprintf("%q", nic["mac"]))
	}
	return all
}

// look opens a view, runs its command and compares.
func look(t *testing.T, b *Browser, ctx context.Context, server string, v shownBy) {
	t.Helper()
	open(t, b, ctx, server, fmt.Sprintf("?%d%s", v.at, v.view))
	if v.at > 0 {
		await(t, b, ctx, fmt.Sprintf("Number(document.getElementById('at').max) > %d", v.at))
		textOf(t, b, ctx, fmt.Sprintf("(() => { const s = document.getElementById('at'); s.value = %d; s.dispatchEvent(new Event('input')); })()", v.at))
		await(t, b, ctx, fmt.Sprintf("document.querySelector('.fresh').innerText.includes('As of entry #%d')", v.at))
	} else if !strings.Contains(v.view, "until=") { // up to an entry nothing more comes
		await(t, b, ctx, lived)
	}
	await(t, b, ctx, v.ready)
	var texts []string
	if err := json.Unmarshal([]byte(textOf(t, b, ctx, "JSON.stringify("+v.texts+")")), &texts); err != nil {
		t.Fatal(err)
	}
	exact := ""
	if v.exact != "" {
		exact = textOf(t, b, ctx, "String("+v.exact+")")
	}
	out := copied(t, b, ctx)
	command := textOf(t, b, ctx, "document.querySelector('code.command').innerText")
	for _, text := range texts {
		if !strings.Contains(out, text) {
			t.Errorf("%s, at %d: %s does not print %q: %.400s", v.view, v.at, command, text, out)
			break
		}
	}
	lines := strings.Count(out, "\n")
	if strings.Contains(v.view, "#/log") { // an update has lines for what it changed
		seqs := map[string]bool{}
		for _, found := range entryLine.FindAllStringSubmatch(out, -1) {
			seqs[found[1]+found[2]] = true
		}
		lines = len(seqs)
	}
	if exact != "" && exact != fmt.Sprint(lines) && exact != fmt.Sprint(lines-1) {
		t.Errorf("%s, at %d: %s prints %d lines for %s: %.600s", v.view, v.at, command, lines, exact, out)
	}
}
