#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/ext/report.hpp>

#include "drawn_plans.hpp"

using namespace dynapipe;

namespace {

/// The cells of a device's line in a timeline.
std::string cells(const plan& p, std::size_t device, std::size_t columns) {
  std::string text = timeline_text(p, replica_id{0}, columns);
  for (std::size_t d = 0; d < device; ++d)
    text.erase(0, text.find('\n') + 1);
  const std::size_t begin = text.find('|') + 1;
  return text.substr(begin, text.find('|', begin) - begin);
}

/// One device that runs forwards of these lengths in a row, up to `whole`.
plan row_of(const std::vector<std::int64_t>& lengths, std::int64_t whole) {
  plan p;
  p.predicted = nanoseconds{whole};
  p.replicas.emplace_back().devices.emplace_back();
  std::int64_t at = 0;
  for (std::size_t m = 0; m < lengths.size(); ++m) {
    p.replicas[0].devices[0].instructions.push_back(
        drawn_plans::compute(opcode::forward, static_cast<int>(m), 0, at, at + lengths[m]));
    at += lengths[m];
  }
  return p;
}

}  // namespace

TEST_CASE("figures of a plan by hand") {
  const plan_summary s = summarize(drawn_plans::two_by_two());
  CHECK(s.micro_batches == 2);
  CHECK(s.samples == 2);
  CHECK(s.real_tokens == 37);
  CHECK(s.padded_tokens == 40);
  CHECK(s.loss_tokens == 12);
  CHECK(s.predicted == nanoseconds{80'000'000});
  CHECK(s.peak == std::vector<bytes>{gib(1), mib(1536)});
  CHECK(s.capacity == std::vector<bytes>{gib(4), gib(4)});
  CHECK(s.bubble == doctest::Approx(1 - 110.0 / 160));
  CHECK(s.padding_efficiency() == doctest::Approx(37.0 / 40));
  CHECK(s.gap() == doctest::Approx(0.25));
  CHECK(summary_text(s, nanoseconds{1'234'567}) ==
        "samples          2 in 2 micro-batches\n"
        "tokens           37 real, 40 padded: padding efficiency 92.5 %\n"
        "predicted        80.000 ms (+ 5.000 ms of gradient synchronisation)\n"
        "lower bound      64.000 ms: at most 25.0 % from optimal for these micro-batches\n"
        "bubble           31.2 % of the devices' time\n"
        "peak memory      1.00 of 4.00, 1.50 of 4.00 GiB\n"
        "planning time    1.235 ms\n");
}

TEST_CASE("figures of an empty plan") {
  const plan_summary s = summarize({});
  CHECK(s.micro_batches == 0);
  CHECK(s.bubble == 0);
  CHECK(s.padding_efficiency() == 1);
  CHECK(s.gap() == 0);
}

TEST_CASE("figures of made plans, counted another way") {
  for (const bool both : {false, true})
    for (const std::size_t samples : {1U, 2U, 40U}) {
      CAPTURE(both);
      CAPTURE(samples);
      const plan p = drawn_plans::planned(both, samples, queue_style::per_direction);
      const plan_summary s = summarize(p);
      REQUIRE(p.replicas.size() == 3);
      CHECK(s.samples == static_cast<std::int64_t>(samples));
      std::int64_t real = 0;
      std::int64_t loss = 0;
      for (const sample_lengths& lengths : p.lengths) {
        real += lengths.input + lengths.target;
        loss += lengths.loss;
      }
      CHECK(s.real_tokens == real);
      CHECK(s.loss_tokens == loss);
      std::int64_t padded = 0;
      std::int64_t micro_batches = 0;
      double busy = 0;
      for (const replica_plan& replica : p.replicas)
        for (const planned_micro_batch& mb : replica.micro_batches) {
          padded += mb.rows * mb.input_length + mb.rows * mb.target_length;
          ++micro_batches;
          for (const stage_cost& cost : mb.cost)
            busy += static_cast<double>((cost.forward + cost.backward + cost.weight).value());
        }
      CHECK(s.padded_tokens == padded);
      CHECK(s.micro_batches == micro_batches);
      CHECK(s.micro_batches >= 3);
      CHECK(s.bubble == doctest::Approx(1 - busy / (12 * static_cast<double>(p.predicted.value()))));
      CHECK(s.predicted == p.predicted);
      CHECK(s.sync == p.sync);
      CHECK(s.lower_bound == p.lower_bound);
      REQUIRE(s.peak.size() == 4);
      for (std::size_t d = 0; d < 4; ++d) {
        bytes peak{0};
        for (const replica_plan& replica : p.replicas)
          peak = std::max(peak, replica.devices[d].peak);
        CHECK(s.peak[d] == peak);
        CHECK(s.capacity[d] == gib(40));
      }
    }
}

TEST_CASE("timeline by hand") {
  const plan p = drawn_plans::two_by_two();
  CHECK(timeline_text(p, replica_id{0}, 16) ==
        "device  0 |aabb....AAAABBBB|\n"
        "device  1 |..aaAAAAbbBB....|\n"
        "        0         80.000 ms\n");
  CHECK(cells(p, 0, 8) == "ab..AABB");
  CHECK(cells(p, 1, 8) == ".aAAbB..");
  CHECK(cells(p, 1, 80).size() == 80);
  CHECK(cells(p, 1, 80).substr(9, 13) == ".aaaaaaaaaaAA");
}

TEST_CASE("a slice shows what fills most of it") {
  CHECK(cells(row_of({60, 40}, 100), 0, 1) == "a");
  CHECK(cells(row_of({40, 60}, 100), 0, 1) == "b");
  CHECK(cells(row_of({20}, 100), 0, 1) == ".");
  CHECK(cells(row_of({45, 40}, 100), 0, 1) == "a");  // 15 idle
  CHECK(cells(row_of({20, 45, 35}, 100), 0, 1) == "b");
  // After z comes a again.
  CHECK(cells(row_of(std::vector<std::int64_t>(28, 10), 280), 0, 28) == "abcdefghijklmnopqrstuvwxyzab");
}

TEST_CASE("a busy device has no idle slice, however many micro-batches there are") {
  for (const std::size_t count : {7U, 100U, 250U, 5'000U}) {
    CAPTURE(count);
    const plan p = row_of(std::vector<std::int64_t>(count, 30), static_cast<std::int64_t>(30 * count));
    CHECK(cells(p, 0, 100).find('.') == std::string::npos);
  }
}

TEST_CASE("a timeline of any width has that width") {
  const plan p = drawn_plans::planned(false, 20, queue_style::single);
  for (const std::size_t columns : {1U, 3U, 8U, 9U, 100U, 1'000U})
    for (std::size_t d = 0; d < 4; ++d)
      CHECK(cells(p, d, columns).size() == columns);
  const std::string last = timeline_text(p, replica_id{2});
  CHECK(std::count(last.begin(), last.end(), '\n') == 5);
}
