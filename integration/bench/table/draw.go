package main

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// Sizes of the drawing, in pixels.
const (
	rowHeight = 20
	textWidth = 330
	barWidth  = 300
	valueEnd  = textWidth + barWidth + 190
	// farthest is how many times the goal, or its reciprocal, the ends of the scale are.
	farthest = 4
)

// draw draws the figures that were measured and have a goal: a bar for each, from the goal in
// the middle to the right if it is met and to the left if it is not. The scale is
// logarithmic: its ends are a quarter of the goal and four times as good.
func draw(rows []row) string {
	var b strings.Builder
	y := 30
	middle := textWidth + barWidth/2
	for _, r := range rows {
		if r.is == nil || r.goal == 0 {
			continue
		}
		better := *r.is / r.goal
		if r.most {
			better = 1 / better
		}
		length := math.Log(min(max(better, 1.0/farthest), farthest)) / math.Log(farthest) * barWidth / 2
		x, color := float64(middle), "#2e7d32"
		if !r.met(*r.is) {
			x, color = float64(middle)+length, "#c62828"
		}
		against := ""
		if r.peer != "" {
			against = " times " + r.peer
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", textWidth-8, y+14, html.EscapeString(r.text))
		fmt.Fprintf(&b, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n", x, y+4, math.Abs(length), rowHeight-7, color)
		fmt.Fprintf(&b, `<text x="%d" y="%d">%s%s (%s)</text>`+"\n", textWidth+barWidth+8, y+14, short(r.is), html.EscapeString(against), r.goalText())
		y += rowHeight
	}
	width := valueEnd + 130
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, y+10) +
		fmt.Sprintf(`<rect width="%d" height="%d" fill="white"/>`+"\n", width, y+10) +
		fmt.Sprintf(`<text x="%d" y="20" text-anchor="middle" font-weight="bold">goal</text>`+"\n", middle) +
		fmt.Sprintf(`<line x1="%d" x2="%d" y1="26" y2="%d" stroke="black"/>`+"\n", middle, middle, y) +
		b.String() + "</svg>\n"
}
