create table t(a integer primary key, b text, c integer);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 300000)
insert into t select i, 'name ' || (i * 7919 % 100003), i % 1000 from n;
create index ti on t(b);
select c, count(*), max(b) from t group by c order by 2 desc, 3 limit 5;
select count(*) from t x join t y on x.c = y.a where x.b like '%77%';
