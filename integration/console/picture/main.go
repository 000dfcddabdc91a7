// Command picture makes a picture of the console's front page, of a `rutter dev` that it
// runs and writes to: docs/console.png, which README shows. scripts/console-picture.sh
// builds what it needs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/chromedp/chromedp"

	"rutter/api/client"
	"rutter/integration/bench/devrun"
	"rutter/integration/console"
)

const (
	width, height = 1180, 760
	maxBytes      = 200_000          // of the picture: README is read over slow lines, too
	writing       = 70 * time.Second // some samples of the history
	pause         = 90 * time.Millisecond
)

func main() {
	program := flag.String("program", "", "the rutter `FILE` that runs")
	out := flag.String("out", "docs/console.png", "the `FILE` that is written")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := picture(ctx, *program, *out); err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}

func picture(ctx context.Context, program, out string) (err error) {
	dir, err := os.MkdirTemp("", "rutter-picture-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	p, err := devrun.Start(ctx, program, dir, "--plain")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Stop(syscall.SIGTERM)) }()
	api, err := client.New(client.Config{Servers: []string{p.URL}})
	if err != nil {
		return err
	}
	defer api.Close()
	b, err := console.Start(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	if err := write(ctx, api); err != nil {
		return err
	}
	if err := b.Look(ctx, width, height, false); err != nil {
		return err
	}
	if err := b.Do(ctx, chromedp.Navigate(p.URL+"/console/")); err != nil {
		return err
	}
	if err := b.Await(ctx, "document.querySelector('.fresh.live') && document.querySelectorAll('.spark .line').length > 1 && main.querySelector('table') && pulse.innerText.startsWith('live')"); err != nil {
		return err
	}
	png, err := b.Picture(ctx)
	if err != nil {
		return err
	}
	if len(png) > maxBytes {
		return fmt.Errorf("the picture has %d bytes, over %d: show less", len(png), maxBytes)
	}
	return os.WriteFile(out, png, 0o644)
}

// write changes aliases of VMs and makes tags for some time, in waves, so that there is
// something to see.
func write(ctx context.Context, api *client.Client) error {
	vms, err := api.List(ctx, "/vms", nil)
	if err != nil {
		return err
	}
	if len(vms) == 0 {
		return errors.New("rutter dev has no VMs")
	}
	begun := time.Now()
	for i := 0; time.Since(begun) < writing; i++ {
		vm := vms[i%len(vms)]
		if _, err := api.Update(ctx, fmt.Sprint("/vms/", vm["uuid"]), fmt.Appendf(nil, `{"alias":"%v","max_physical_memory":%d}`, vm["alias"], 512+256*(i%8)), ""); err != nil {
			return err
		}
		if i%10 == 0 {
			if _, err := api.Create(ctx, "/nic_tags", fmt.Appendf(nil, `{"name":"rack%d"}`, i/10)); err != nil {
				return err
			}
		}
		wave := time.Duration(1 + int(time.Since(begun)/(10*time.Second))%3)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause * wave):
		}
	}
	return nil
}
