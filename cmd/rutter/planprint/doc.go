// Package planprint prints what changes would do, as package foresee says it: for
// people, as one JSON text, or as lines of JSON. It decides nothing.
package planprint
