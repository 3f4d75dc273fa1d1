#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/plan/validate.hpp>

#include "sample_plan.hpp"

using namespace dynapipe;
using namespace sample_plans;

namespace {

void require_holds(const plan& p) {
  for (const violation& v : validate(p))
    FAIL_CHECK(v.where << ": " << v.what);
}

/// `one_f_one_b` with both devices' lists changed so that device 0 receives the first gradient and sends the second
/// activation at the same time, where its queues allow it.
plan crossing(queue_style queues) {
  plan p = one_f_one_b();
  p.pipeline.queues = queues;
  const bool both_ways = queues == queue_style::per_direction;
  const std::int64_t late = both_ways ? 0 : 3;
  std::vector<instruction>& lower = p.replicas[0].devices[0].instructions;
  std::swap(lower[5], lower[6]);
  lower[6] = at(lower[6], 48 + late, 49 + late);
  std::vector<instruction>& upper = p.replicas[0].devices[1].instructions;
  std::rotate(upper.begin() + 1, upper.begin() + 2, upper.begin() + 7);
  upper[6] = at(upper[6], 48 + late, 49 + late);
  upper[10] = at(upper[10], 49 + late, 56 + late);
  upper[11] = at(upper[11], 56 + late, 70 + late);
  const std::int64_t back = std::max<std::int64_t>(70 + late, 71);
  upper[12] = at(upper[12], back, back + 1);
  lower[12] = at(lower[12], back, back + 1);
  lower[16] = at(lower[16], back + 1, back + 13);
  p.predicted = p.replicas[0].predicted = nanoseconds{back + 13};
  p.iteration = p.predicted + p.sync;
  p.replicas[0].devices[1].peak = bytes{1174};
  return p;
}

}  // namespace

TEST_CASE("validate: plans computed by hand hold") {
  for (const auto& [name, p] : sample_plans::all()) {
    CAPTURE(name);
    require_holds(p);
  }
}

TEST_CASE("validate: the queue style decides the times") {
  const plan both_ways = crossing(queue_style::per_direction);
  CHECK(both_ways.predicted == nanoseconds{84});
  require_holds(both_ways);
  const plan one_way = crossing(queue_style::per_peer);
  CHECK(one_way.predicted == nanoseconds{86});
  require_holds(one_way);
  require_holds(crossing(queue_style::single));

  plan claimed = both_ways;
  claimed.pipeline.queues = queue_style::per_peer;
  const std::vector<violation> found = validate(claimed);
  REQUIRE(!found.empty());
  CHECK(found[0].where == "replicas[0].devices[1].instructions[6] (recv)");
  CHECK(found[0].what.find("runs from 51 to 52 ns, the plan states 48 to 49") != std::string::npos);
}

TEST_CASE("validate: a dummy of one row holds") {
  plan p = one_f_one_b();
  planned_micro_batch& second = p.replicas[0].micro_batches[1];
  second.samples.clear();
  second.loss_tokens = 0;
  second.dummy = true;
  p.dropped.push_back(sample_id{2});
  require_holds(p);
  second.rows = 2;
  CHECK(validate(p).size() == 1);
}

TEST_CASE("validate: the slowest replica is the plan's time") {
  plan p = one_f_one_b();
  replica_plan other = p.replicas[0];
  for (std::size_t m = 0; m < 2; ++m)
    for (std::vector<sample_id>& row : other.micro_batches[m].samples)
      for (sample_id& id : row)
        id = to_id<sample_id>(index(id) + 4);
  p.lengths.insert(p.lengths.end(), {{5, 0, 4}, {3, 0, 2}, {4, 0, 3}});
  p.source_rows.insert(p.source_rows.end(), {4, 5, 6});
  for (device_plan& d : other.devices) {
    for (instruction& i : d.instructions)
      if (i.op == opcode::backward && i.mb == micro_batch_id{1} && i.stage == stage_id{0}) i.end += nanoseconds{10};
  }
  other.micro_batches[1].cost[0].backward += nanoseconds{10};
  other.predicted = nanoseconds{94};
  p.replicas.push_back(other);
  p.predicted = nanoseconds{94};
  p.iteration = nanoseconds{100};
  require_holds(p);
  p.predicted = nanoseconds{84};
  p.iteration = nanoseconds{90};
  CHECK(validate(p).size() == 1);
}

TEST_CASE("validate: an encoder-decoder's layers follow one another, the encoder first") {
  plan p = there_and_back();
  p.pipeline.stages = {{{0, 2}, {0, 0}, true, false},
                       {{2, 4}, {0, 0}, false, false},
                       {{0, 0}, {0, 3}, true, false},
                       {{0, 0}, {3, 4}, false, true}};
  require_holds(p);
  std::swap(p.pipeline.stages[1], p.pipeline.stages[2]);
  const std::vector<violation> found = validate(p);
  REQUIRE(found.size() == 1);
  CHECK(found[0].where == "pipeline.stages[2].encoder");
}

TEST_CASE("validate: buffers without bytes share a place in the arena") {
  plan p = with_arena();
  instruction& load = p.replicas[0].devices[0].instructions[3];
  load.size = bytes{0};
  load.offset = bytes{40};
  require_holds(p);
  load.size = bytes{1};
  REQUIRE(validate(p).size() == 1);
  CHECK(validate(p)[0].what == "buffer 2 at [40, 41) overlaps the live buffer 1");
}

TEST_CASE("validate: several faults are reported, at most twenty") {
  plan p = one_f_one_b();
  p.lower_bound = nanoseconds{1};
  p.sync = nanoseconds{-1};
  p.replicas[0].devices[0].peak = bytes{1};
  const std::vector<violation> found = validate(p);
  CHECK(found.size() == 4);
  p.lengths.assign(1000, {});
  CHECK(validate(p).size() == 20);
}

TEST_CASE("validate: a deadlock is told as the shortest chain of waiting devices") {
  plan p = one_f_one_b();
  std::vector<instruction>& lower = p.replicas[0].devices[0].instructions;
  std::rotate(lower.begin() + 2, lower.begin() + 6, lower.begin() + 7);
  const std::vector<violation> found = validate(p);
  const auto chain =
      std::find_if(found.begin(), found.end(), [](const violation& v) { return v.what.starts_with("deadlock: "); });
  REQUIRE(chain != found.end());
  CHECK(chain->where == "replicas[0]");
  CHECK(chain->what ==
        "deadlock: device 0 stands at instruction 2 (recv of the gradient of micro-batch 0 at stage 0) and waits for "
        "device 1's instruction 6 (send of the gradient of micro-batch 0 at stage 1); device 1 stands at instruction 0 "
        "(recv of the activation of micro-batch 0 at stage 1) and waits for device 0's instruction 3 (send of the "
        "activation of micro-batch 0 at stage 0)");
}

TEST_CASE("validate: amounts beyond 64 bits do not overflow") {
  plan p = one_f_one_b();
  for (planned_micro_batch& batch : p.replicas[0].micro_batches)
    for (stage_cost& c : batch.cost)
      c.forward = nanoseconds::max();
  bool summed = false;
  for (const violation& v : validate(p))
    summed = summed || v.what.find("18446744073709551652") != std::string::npos;
  CHECK(summed);
}

TEST_CASE("validate: an empty plan is no plan") { CHECK(validate(plan{}).size() >= 3); }
