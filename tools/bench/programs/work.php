<?php
function words($text) { preg_match_all('/[a-z]+/', $text, $m); return array_count_values($m[0]); }
$text = str_repeat("the quick brown fox jumps over the lazy dog ", 2000);
for ($i = 0; $i < 250; $i++) { words($text); $a = range(1, 20000); usort($a, fn($x, $y) => $y <=> $x); }
