package console

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"rutter/api/client"
	"rutter/integration/rig"
)

// patience bounds a test: Chromium on a busy machine starts in seconds.
const patience = 4 * time.Minute

func browser(t *testing.T, more ...chromedp.ExecAllocatorOption) (*Browser, context.Context) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	b, err := Start(ctx, more...)
	if errors.Is(err, ErrNoBrowser) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b, ctx
}

// dev runs `rutter dev`, three servers and two compute nodes with the demo's
// objects, and returns a client of it.
func dev(t *testing.T, ctx context.Context) (*client.Client, string) {
	t.Helper()
	p := rig.Dev(t, ctx, rutter, "--plain")
	api, err := client.New(client.Config{Servers: []string{p.URL}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Close)
	return api, p.URL
}

func open(t *testing.T, b *Browser, ctx context.Context, server, view string) {
	t.Helper()
	if err := b.Do(ctx, chromedp.Navigate(server+"/console/"+view)); err != nil {
		t.Fatal(err)
	}
}

func await(t *testing.T, b *Browser, ctx context.Context, expression string) {
	t.Helper()
	bounded, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := b.Await(bounded, expression); err != nil {
		t.Fatal(err, b.Problems())
	}
}

func textOf(t *testing.T, b *Browser, ctx context.Context, expression string) string {
	t.Helper()
	text, err := b.Text(ctx, expression)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// shot keeps a picture of the window, if RUTTER_SCREENSHOTS names a folder for it.
func shot(t *testing.T, b *Browser, ctx context.Context, name string) {
	t.Helper()
	folder := os.Getenv("RUTTER_SCREENSHOTS")
	if folder == "" {
		return
	}
	png, err := b.Picture(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, name+".png"), png, 0o644); err != nil {
		t.Fatal(err)
	}
}

// first returns the object of a list that comes first.
func first(t *testing.T, ctx context.Context, api *client.Client, path string, query url.Values) client.Object {
	t.Helper()
	list, err := api.List(ctx, path, query)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) == 0 {
		t.Fatalf("GET %s has nothing", path)
	}
	return list[0]
}
