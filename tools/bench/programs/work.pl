my %count; my $text = "the quick brown fox jumps over the lazy dog " x 2000;
sub words { my ($t) = @_; my @w = ($t =~ /([a-z]+)/g); return sort { $a cmp $b } @w; }
for my $i (1..60) { for my $w (words($text)) { $count{$w . ($i % 7)}++; } }
print scalar(keys %count), "\n";
