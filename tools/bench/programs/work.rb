def words(text) = text.scan(/[a-z]+/).group_by(&:size).transform_values(&:count)
text = "the quick brown fox jumps over the lazy dog " * 2000
60.times { |i| words(text); (1..2000).map { |x| x.to_s * 3 }.sort.uniq }
