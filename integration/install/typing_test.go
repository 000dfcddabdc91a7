package install

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"rutter/integration/pages"
)

const (
	// perMinute is how many characters a person types in a minute.
	perMinute = 200
	// within bounds the time from clean machines to a network that is watched and backed up.
	within = 30 * time.Minute
	// alertFor and scrapeEvery are times of the files of Prometheus that the walk shortens, to
	// 2 s and 1 s: the alert waits for the first at most, and four commands for the second.
	alertFor, scrapeEvery = time.Minute, 15 * time.Second
	untilShortened        = alertFor - 2*time.Second + 4*(scrapeEvery-time.Second)
)

// counted reports whether a section belongs to the way that is counted. Later ones are about
// what comes later.
func counted(section string) bool {
	return section != "Logs and restarts" && section != "Upgrade" && section != "Remove"
}

// typed counts the characters of the counted blocks, each as often as on machines.
func typed(all []pages.Step) (n int) {
	for _, block := range all {
		if counted(block.Section) {
			n += len(block.Hosts) * len(block.Script)
		}
	}
	return n
}

func typing(n int) time.Duration { return time.Duration(n) * time.Minute / perMinute }

// saidForm is the page's sentence about that.
var saidForm = regexp.MustCompile(`They are (\d+) characters, all typed by hand: (\d+)\s+minutes at (\d+) a minute. Waiting for them takes about (\d+) minutes more.`)

// said are the numbers of that sentence.
func said(t *testing.T) (characters, minutes, speed, waiting int) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	words := saidForm.FindStringSubmatch(string(text))
	if words == nil {
		t.Fatalf("%s does not say how long it takes, in the form %s", page, saidForm)
	}
	var list []int
	for _, w := range words[1:] {
		n, err := strconv.Atoi(w)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, n)
	}
	return list[0], list[1], list[2], list[3]
}

// TestTyping: the page says how much is to be typed, to the next 100 characters and to the
// next minute, and with the waiting that it says it is less than half an hour.
func TestTyping(t *testing.T) {
	all, err := pages.Read(page)
	if err != nil {
		t.Fatal(err)
	}
	n := typed(all)
	characters, minutes, speed, waiting := said(t)
	took := typing(n)
	if speed != perMinute || characters != (n+99)/100*100 || minutes != int((took+time.Minute-1)/time.Minute) {
		t.Errorf("%d characters are to be typed, which takes %v at %d a minute; the page says %d, %d minutes at %d", n, took.Round(time.Second), perMinute, characters, minutes, speed)
	}
	if whole := took + time.Duration(waiting)*time.Minute; whole >= within {
		t.Errorf("typing takes %v and waiting %d minutes by the page: together %v, want less than %v", took, waiting, whole, within)
	}
	// The times of alerts are those that are counted.
	for file, want := range map[string]string{
		"alerts.yml":     fmt.Sprintf("- alert: RutterAgentDown\n        expr: up{job=\"rutter-agent\"} == 0\n        for: %.0fm\n", alertFor.Minutes()),
		"prometheus.yml": fmt.Sprintf("scrape_interval: %v\n  evaluation_interval: %v\n", scrapeEvery, scrapeEvery),
	} {
		text, err := os.ReadFile("../../scripts/monitoring/" + file)
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %q: %v", file, want, err)
		}
	}
}

// underHalfAnHour: what was waited on these machines, with the times that the walk shortened,
// and what is to be typed.
func (w *walk) underHalfAnHour(all []pages.Step) {
	n := typed(all)
	waited := w.waited + untilShortened
	whole := typing(n) + waited
	w.t.Logf("typed: %d characters, %v at %d a minute; waited: %v, %v of it as alerts wait outside of this test; together %v",
		n, typing(n).Round(time.Second), perMinute, waited.Round(time.Second), untilShortened, whole.Round(time.Second))
	if _, _, _, waiting := said(w.t); waited > time.Duration(waiting)*time.Minute {
		w.t.Logf("that is more than the %d minutes of waiting that the page says", waiting)
	}
	if whole >= within { // a busy machine's waiting is no fault of the page, which TestTyping compares
		w.t.Logf("the page takes %v here, which is to be less than %v on a machine with nothing else to do", whole, within)
	}
}
