// Package lying tests that one compute node (CN) that lies gets nothing beyond itself: a
// model drives five CNs and an operator through thousands of histories at the pure core
// (package rules decides, package projections folds, package desired says what kernels
// hold), and judges each step of the CN that lies by what was given to it, without the
// rules' own functions.
package lying
