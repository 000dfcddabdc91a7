package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTable: values of several benches, one of which only printed its line, with the last
// release's; what was not measured is na, and no figure is met by having no value.
func TestTable(t *testing.T) {
	folder := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file("bench-store.json", `{"append_512_vs_etcd": "4.2", "us_per_change": "67", "append_64_vs_etcd": "na"}`)
	released := file("released.json", `{"store": {"append_512_vs_etcd": "2.55"}}`)
	var shown strings.Builder
	if err := keep(strings.NewReader("servers at 127.0.0.1:80=a\np50_1x1_vs_echo=1.1 vs_redis_1x64=3\n"), &shown, fileOf(folder, "svp")); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(shown.String(), "servers at") {
		t.Errorf("of the bench was shown %q", shown.String())
	}
	rows, err := read(folder, released)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := write(&text, rows); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"4.2", "2.55", "met", "67", "missed", "1.1", "na"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, text.String())
		}
	}
	for _, r := range rows {
		if r.is == nil && r.verdict() != "" {
			t.Errorf("%s was not measured, and is %s", r.key, r.verdict())
		}
	}
	picture := draw(rows)
	for d := xml.NewDecoder(strings.NewReader(picture)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("the drawing is no XML: %v\n%s", err, picture)
		}
	}
	if n := strings.Count(picture, "<rect"); n != 4 { // its ground, and three bars
		t.Errorf("%d rectangles are drawn, want 4:\n%s", n, picture)
	}
	if err := writeReleased(released, rows); err != nil {
		t.Fatal(err)
	}
	if rows, err = read(t.TempDir(), released); err != nil || rows[0].is != nil || rows[0].was == nil || *rows[0].was != 4.2 {
		t.Errorf("after the release: %+v, %v", rows[0], err)
	}
}

// TestBadFiles: what is no number, no JSON or no line is an error that says where.
func TestBadFiles(t *testing.T) {
	folder := t.TempDir()
	if err := keep(strings.NewReader("no line\n"), io.Discard, fileOf(folder, "svp")); err == nil {
		t.Error("a bench without a line of key=value was taken")
	}
	for text, says := range map[string]string{`{"us_per_change": "fast"}`: "us_per_change", "{": "bench-store.json"} {
		if err := os.WriteFile(fileOf(folder, "store"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := read(folder, filepath.Join(folder, "none")); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want it to say %s", text, err, says)
		}
	}
}

// TestFiguresAreMeasured: each figure is one that its bench prints.
func TestFiguresAreMeasured(t *testing.T) {
	sources := map[string]string{
		"store": "../store/*.go", "feed": "../feed/*.go", "wire": "../wire/*.go", "inspect": "../inspect/*.go", "triton": "../triton/*.go", "security": "../security/*.go",
		"svp": "../../svpbench/*.go", "vmstate": "../../vmbench/*.go", "kernel": "../../../scripts/bench-kernel.sh", "simulate": "../../simulate/*.go",
	}
	for _, f := range figures {
		paths, err := filepath.Glob(sources[f.bench])
		if err != nil || len(paths) == 0 {
			t.Fatalf("bench-%s has no source: %v", f.bench, err)
		}
		found := false
		for _, path := range paths {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			found = found || strings.Contains(string(b), f.key)
		}
		if !found {
			t.Errorf("bench-%s does not measure %s", f.bench, f.key)
		}
	}
}
