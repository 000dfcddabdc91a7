// Package snoopcmd has the commands that show a protocol of Triton's as it goes by:
// rutter changefeed snoop and rutter svp snoop.
package snoopcmd
