package console

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// ErrNoBrowser is returned where no Chromium is installed.
var ErrNoBrowser = errors.New("no chromium on this machine: apt-get install chromium")

// programs are names of Chromium, in the order in which they are looked for.
var programs = []string{"chromium", "chromium-browser", "google-chrome"}

// Browser is one page of a headless Chromium.
type Browser struct {
	ctx    context.Context
	cancel []context.CancelFunc

	mu       sync.Mutex
	problems []string
}

// Start starts Chromium with one empty page of a desktop's size, and more options. It
// ends with ctx, or by Close. Errors: ErrNoBrowser, those of the start.
func Start(ctx context.Context, more ...chromedp.ExecAllocatorOption) (*Browser, error) {
	program := ""
	for _, name := range programs {
		if found, err := exec.LookPath(name); err == nil {
			program = found
			break
		}
	}
	if program == "" {
		return nil, ErrNoBrowser
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.WindowSize(1280, 860),
		chromedp.Flag("disable-dev-shm-usage", true)) // a container's is small
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium refuses its sandbox to root
	}
	options = append(options, more...)
	b := new(Browser)
	allocator, stop := chromedp.NewExecAllocator(ctx, options...)
	page, closePage := chromedp.NewContext(allocator)
	b.ctx, b.cancel = page, []context.CancelFunc{closePage, stop}
	err := chromedp.Listen(page, b.hear)
	if err == nil {
		_, err = chromedp.Call(page, cdplog.Enable, cdp.Empty{})
	}
	if err == nil {
		_, err = chromedp.Call(page, runtime.Enable, cdp.Empty{})
	}
	if err != nil {
		b.Close()
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	return b, nil
}

// hear keeps what the page complains of: exceptions, errors on its console, and
// what its policy refused.
func (b *Browser) hear(event any) {
	problem := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		problem = e.ExceptionDetails.Text
		if x := e.ExceptionDetails.Exception; x != nil {
			problem += " " + x.Description
		}
	case *cdplog.EventEntryAdded:
		if e.Entry.Level == "error" {
			problem = e.Entry.Text + " " + e.Entry.URL
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == "error" {
			problem = fmt.Sprint("console.error of ", len(e.Args), " values")
		}
	}
	if problem != "" {
		b.mu.Lock()
		b.problems = append(b.problems, problem)
		b.mu.Unlock()
	}
}

// Problems returns what the page has complained of since the last call.
func (b *Browser) Problems() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	problems := b.problems
	b.problems = nil
	return problems
}

// Close ends the browser.
func (b *Browser) Close() {
	for _, cancel := range b.cancel {
		cancel()
	}
}

// within is the page's context, which also ends with ctx.
func (b *Browser) within(ctx context.Context) (context.Context, func()) {
	bounded, cancel := context.WithCancelCause(b.ctx)
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	return bounded, func() { stop(); cancel(nil) }
}

// Do runs steps on the page, until ctx ends.
func (b *Browser) Do(ctx context.Context, steps ...chromedp.Action[chromedp.Void]) error {
	bounded, done := b.within(ctx)
	defer done()
	return chromedp.Do(bounded, steps...)
}

// Text returns what a JavaScript expression gives, as text; a promise is awaited.
func (b *Browser) Text(ctx context.Context, expression string) (string, error) {
	bounded, done := b.within(ctx)
	defer done()
	return chromedp.Run(bounded, chromedp.Evaluate[string]("(async () => String(await ("+expression+")))()", chromedp.EvalAwaitPromise))
}

// lookEvery is the time between two looks of Await, in ms.
const lookEvery = 20

// Await waits until a JavaScript expression is true.
func (b *Browser) Await(ctx context.Context, expression string) error {
	script := fmt.Sprintf("new Promise(done => { const look = () => { let ok = false; try { ok = Boolean(%s); } catch { /* not there yet */ } if (ok) done(true); else setTimeout(look, %d); }; look(); })",
		expression, lookEvery)
	if _, err := b.Text(ctx, script); err != nil {
		shown, _ := b.Text(b.ctx, "document.body.innerText.slice(0, 900)") // it helps, if it can be had
		return fmt.Errorf("%s did not come true: %w; the page shows: %s", expression, err, strings.ReplaceAll(shown, "\n", " | "))
	}
	return nil
}

// Look sets the size of the window in CSS pixels, and whether the system is dark.
func (b *Browser) Look(ctx context.Context, width, height int64, dark bool) error {
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	if err := b.Do(ctx, chromedp.EmulateViewport(width, height)); err != nil {
		return err
	}
	bounded, done := b.within(ctx)
	defer done()
	_, err := chromedp.Call(bounded, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	return err
}

// Picture returns what the window shows, as PNG.
func (b *Browser) Picture(ctx context.Context) ([]byte, error) {
	bounded, done := b.within(ctx)
	defer done()
	return chromedp.Run(bounded, chromedp.CaptureScreenshot())
}

// Unnamed returns the controls of the page that have no name for a screen reader.
func (b *Browser) Unnamed(ctx context.Context) ([]string, error) {
	bounded, done := b.within(ctx)
	defer done()
	tree, err := chromedp.Call(bounded, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	if err != nil {
		return nil, err
	}
	controls := []string{"button", "link", "textbox", "searchbox", "combobox", "slider", "img", "image", "table", "region", "navigation"}
	var unnamed []string
	for _, node := range tree.Nodes {
		if node.Ignored || node.Role == nil {
			continue
		}
		role := strings.Trim(string(node.Role.Value), `"`)
		if slices.Contains(controls, role) && (node.Name == nil || strings.Trim(string(node.Name.Value), `" `) == "") {
			unnamed = append(unnamed, fmt.Sprintf("%s (node %d)", role, node.BackendDOMNodeID))
		}
	}
	return unnamed, nil
}
