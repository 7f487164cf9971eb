// blobloom FILE IDS RATE: as ours.c, with github.com/greatroar/blobloom, a blocked filter, and xxhash.
package main

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/greatroar/blobloom"
)

const id = 36

func pass(filter *blobloom.Filter, ids []byte, adds bool) (found int) {
	for ; len(ids) > 0; ids = ids[id:] {
		hash := xxhash.Sum64(ids[:id])
		if adds {
			filter.Add(hash)
		} else if filter.Has(hash) {
			found++
		}
	}
	return found
}

func main() {
	count, _ := strconv.Atoi(os.Args[2])
	rate, _ := strconv.ParseFloat(os.Args[3], 64)
	ids, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	filter := blobloom.NewOptimized(blobloom.Config{Capacity: uint64(count), FPRate: rate})
	there, others := ids[:count*id], ids[count*id:2*count*id]
	var took [3]float64
	var found [3]int
	for i, part := range [][]byte{there, there, others} {
		begin := time.Now()
		found[i] = pass(filter, part, i == 0)
		took[i] = float64(time.Since(begin).Nanoseconds()) / float64(count)
	}
	if found[1] != count {
		panic("an id was forgotten")
	}
	fmt.Printf("{\"name\": \"blobloom\", \"add\": %.1f, \"there\": %.1f, \"absent\": %.1f, \"bits\": %.2f, \"false\": %d}\n",
		took[0], took[1], took[2], float64(filter.NumBits())/float64(count), found[2])
}
