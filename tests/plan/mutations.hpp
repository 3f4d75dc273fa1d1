#pragma once

#include <utility>
#include <vector>

#include "sample_plan.hpp"

/// Ways of breaking a plan that holds, each with words that its violation must contain.
namespace mutations {

using namespace sample_plans;

struct mutation {
  const char* name;
  plan (*sample)();
  void (*apply)(plan&);
  const char* expected;
};

inline std::vector<instruction>& program(plan& p, std::size_t device) {
  return p.replicas[0].devices[device].instructions;
}
inline planned_micro_batch& batch(plan& p, std::size_t m) { return p.replicas[0].micro_batches[m]; }
inline void cut(plan& p, std::size_t device, std::ptrdiff_t position) {
  program(p, device).erase(program(p, device).begin() + position);
}
inline void add(plan& p, std::size_t device, std::ptrdiff_t position, const instruction& i) {
  program(p, device).insert(program(p, device).begin() + position, i);
}
inline void swap(plan& p, std::size_t device, std::size_t a, std::size_t b) {
  std::swap(program(p, device)[a], program(p, device)[b]);
}

/// Samples, shapes, costs, layers and totals.
inline std::vector<mutation> of_batches() {
  return {
      {"sample planned twice", one_f_one_b, [](plan& p) { batch(p, 1).samples[0].push_back(sample_id{0}); }, "2 times"},
      {"sample left out", one_f_one_b, [](plan& p) { p.dropped.clear(); }, "0 times"},
      {"sample planned and dropped", one_f_one_b, [](plan& p) { p.dropped.push_back(sample_id{0}); }, "2 times"},
      {"unknown sample in a row", one_f_one_b, [](plan& p) { batch(p, 0).samples[0][0] = sample_id{77}; },
       "no sample 77"},
      {"negative sample in a row", one_f_one_b, [](plan& p) { batch(p, 0).samples[0][0] = sample_id{-1}; },
       "no sample -1"},
      {"unknown sample dropped", one_f_one_b, [](plan& p) { p.dropped[0] = sample_id{4}; }, "no sample 4"},
      {"row too long", one_f_one_b, [](plan& p) { batch(p, 0).input_length = 4; }, "5 input tokens"},
      {"target too long", one_f_one_b, [](plan& p) { p.lengths[2].target = 1; }, "1 target tokens"},
      {"rows miscounted", one_f_one_b, [](plan& p) { batch(p, 0).rows = 3; }, "states 3 rows"},
      {"empty row", one_f_one_b,
       [](plan& p) {
         batch(p, 0).samples.emplace_back();
         batch(p, 0).rows = 3;
       },
       "empty row"},
      {"empty micro-batch", one_f_one_b,
       [](plan& p) {
         batch(p, 1).samples.clear();
         batch(p, 1).rows = 0;
         batch(p, 1).loss_tokens = 0;
         p.dropped.push_back(sample_id{2});
       },
       "no dummy"},
      {"dummy with samples", one_f_one_b, [](plan& p) { batch(p, 1).dummy = true; }, "is a dummy with"},
      {"dummy with loss", one_f_one_b,
       [](plan& p) {
         batch(p, 1).dummy = true;
         batch(p, 1).samples.clear();
         p.dropped.push_back(sample_id{2});
       },
       "is a dummy with"},
      {"loss miscounted", one_f_one_b, [](plan& p) { batch(p, 0).loss_tokens = 7; }, "its samples have 6"},
      {"no loss at all", one_f_one_b,
       [](plan& p) {
         for (sample_lengths& sample : p.lengths)
           sample.loss = 0;
         batch(p, 0).loss_tokens = batch(p, 1).loss_tokens = 0;
       },
       "no micro-batch has a loss token"},
      {"two rows in varlen", one_f_one_b, [](plan& p) { p.layout = batch_layout::varlen; }, "varlen has one"},
      {"unknown layout", one_f_one_b, [](plan& p) { p.layout = static_cast<batch_layout>(9); }, "unknown layout"},
      {"sources too few", one_f_one_b, [](plan& p) { p.source_rows.pop_back(); }, "entries for 4 samples"},
      {"no replica", one_f_one_b, [](plan& p) { p.replicas.clear(); }, "there is none"},
      {"replica without micro-batch", one_f_one_b,
       [](plan& p) {
         p.replicas.emplace_back();
         p.replicas[1].devices = p.replicas[0].devices;
         for (device_plan& d : p.replicas[1].devices) {
           d.instructions.clear();
           d.peak = d.fixed;
         }
       },
       "there is none"},
      {"device missing", one_f_one_b, [](plan& p) { p.replicas[0].devices.pop_back(); }, "lists 1 devices"},
      {"stage on no device", one_f_one_b, [](plan& p) { p.pipeline.stage_device[1] = device_id{2}; }, "no device 2"},
      {"stage missing", one_f_one_b, [](plan& p) { p.pipeline.stages.pop_back(); }, "describes 1 stages"},
      {"cost missing", one_f_one_b, [](plan& p) { batch(p, 0).cost.pop_back(); }, "1 entries for 2 stages"},
      {"boundary missing", one_f_one_b, [](plan& p) { batch(p, 1).boundary.clear(); }, "0 entries for 2 stages"},
      {"negative cost", one_f_one_b, [](plan& p) { batch(p, 0).cost[0].backward_peak = bytes{-1}; }, "negative"},
      {"peak below stored", one_f_one_b, [](plan& p) { batch(p, 0).cost[0].forward_peak = bytes{99}; }, "lies below"},
      {"weight part above whole", split_backward, [](plan& p) { batch(p, 0).cost[0].weight_stored = bytes{101}; },
       "lies above"},
      {"recompute contradicts", one_f_one_b, [](plan& p) { batch(p, 0).cost[0].recompute = recompute_mode::full; },
       "the pipeline's is none"},
      {"layers backwards", one_f_one_b, [](plan& p) { p.pipeline.stages[0].decoder = {2, 0}; }, "no range of layers"},
      {"layer left out", one_f_one_b, [](plan& p) { p.pipeline.stages[1].decoder.from = 3; },
       "begins at layer 3, the stages before it end at 2"},
      {"no tensor parallel rank", one_f_one_b, [](plan& p) { p.pipeline.tensor_parallel = 0; }, "must be at least 1"},
      {"no context parallel rank", one_f_one_b, [](plan& p) { p.pipeline.context_parallel = -1; },
       "must be at least 1"},
      {"unknown dtype", one_f_one_b, [](plan& p) { p.pipeline.type = static_cast<dtype>(9); }, "unknown type"},
      {"unknown recompute", one_f_one_b, [](plan& p) { p.pipeline.recompute = static_cast<recompute_mode>(9); },
       "unknown mode"},
      {"unknown recompute of a cost", there_and_back,
       [](plan& p) { batch(p, 0).cost[1].recompute = static_cast<recompute_mode>(9); }, "unknown recompute mode"},
      {"tensor of negative size", one_f_one_b, [](plan& p) { batch(p, 0).boundary[0].tensors[0][1] = -16; },
       "negative size"},
      {"boundary carries nothing", one_f_one_b, [](plan& p) { batch(p, 0).boundary[0].forward_bytes = bytes{0}; },
       "above 0"},
      {"boundary of negative time", one_f_one_b, [](plan& p) { batch(p, 0).boundary[0].forward = nanoseconds{-2}; },
       "negative time"},
      {"boundary inside a device takes time", there_and_back,
       [](plan& p) { batch(p, 0).boundary[1].forward = nanoseconds{1}; }, "takes time"},
      {"whole backward with weight time", one_f_one_b, [](plan& p) { batch(p, 0).cost[0].weight = nanoseconds{1}; },
       "weight_ns of 1"},
      {"bound below the device load", one_f_one_b, [](plan& p) { p.lower_bound = nanoseconds{56}; }, "below"},
      {"bound above the time", one_f_one_b, [](plan& p) { p.lower_bound = nanoseconds{85}; }, "above"},
      {"prediction off", one_f_one_b,
       [](plan& p) {
         p.predicted = nanoseconds{85};
         p.iteration = nanoseconds{91};
       },
       "slowest replica takes 84"},
      {"replica's prediction off", one_f_one_b, [](plan& p) { p.replicas[0].predicted = nanoseconds{83}; },
       "the replica takes 84"},
      {"iteration off", one_f_one_b, [](plan& p) { p.iteration = nanoseconds{84}; }, "predicted_ns + sync_ns is 90"},
      {"negative sync", one_f_one_b,
       [](plan& p) {
         p.sync = nanoseconds{-6};
         p.iteration = nanoseconds{78};
       },
       "negative"},
  };
}

/// Instructions, transfers, order and times.
inline std::vector<mutation> of_programs() {
  return {
      {"unknown operation", one_f_one_b, [](plan& p) { program(p, 0)[0].op = static_cast<opcode>(77); },
       "unknown operation"},
      {"field of another operation", one_f_one_b, [](plan& p) { program(p, 0)[7].size = bytes{64}; }, "does not have"},
      {"unknown micro-batch", one_f_one_b, [](plan& p) { program(p, 0)[0].mb = micro_batch_id{2}; },
       "no micro-batch 2"},
      {"unknown stage", one_f_one_b, [](plan& p) { program(p, 1)[2].stage = stage_id{2}; }, "no stage 2"},
      {"stage of another device", one_f_one_b, [](plan& p) { program(p, 0)[0].stage = stage_id{1}; },
       "lives on device 1"},
      {"peer is oneself", one_f_one_b, [](plan& p) { program(p, 0)[2].peer = device_id{0}; },
       "names device 0 as its peer"},
      {"peer that is not there", one_f_one_b, [](plan& p) { program(p, 0)[2].peer = device_id{5}; }, "names device 5"},
      {"activation of the last stage", one_f_one_b, [](plan& p) { program(p, 1)[6].tensor = activation; },
       "no stage on that side"},
      {"message inside a device", there_and_back,
       [](plan& p) { add(p, 1, 4, move(opcode::send, activation, 0, 1, 1, 1, 16, 12, 12)); }, "exchange no message"},
      {"send of wrong size", one_f_one_b, [](plan& p) { program(p, 0)[2].size = bytes{65}; }, "moves 65 bytes"},
      {"receive of wrong size", one_f_one_b, [](plan& p) { program(p, 1)[0].size = bytes{63}; }, "moves 63 bytes"},
      {"compute of wrong duration", one_f_one_b, [](plan& p) { program(p, 0)[1].end = nanoseconds{9}; }, "lasts 9 ns"},
      {"transfer of wrong duration", one_f_one_b, [](plan& p) { program(p, 0)[2].end = nanoseconds{13}; },
       "lasts 3 ns"},
      {"no forward", one_f_one_b, [](plan& p) { cut(p, 0, 1); }, "has no forward"},
      {"forward twice", one_f_one_b, [](plan& p) { add(p, 0, 2, program(p, 0)[1]); }, "again"},
      {"no backward", one_f_one_b, [](plan& p) { cut(p, 0, 10); }, "has no backward"},
      {"half a backward", split_backward, [](plan& p) { cut(p, 0, 11); }, "no backward_weight"},
      {"whole and half", one_f_one_b, [](plan& p) { add(p, 0, 11, at(step(opcode::backward_weight, 0, 0), 71, 71)); },
       "whole backward and a backward_weight"},
      {"send without receive", one_f_one_b,
       [](plan& p) {
         cut(p, 1, 9);
         cut(p, 1, 1);
       },
       "sent and not received"},
      {"receive without send", one_f_one_b,
       [](plan& p) {
         cut(p, 0, 13);
         cut(p, 0, 5);
       },
       "received and not sent"},
      {"boundary never crossed", one_f_one_b,
       [](plan& p) {
         cut(p, 0, 13);
         cut(p, 0, 5);
         cut(p, 1, 9);
         cut(p, 1, 1);
       },
       "not moved"},
      {"messages overtake one another", one_f_one_b, [](plan& p) { swap(p, 1, 0, 1); }, "received before it"},
      {"devices wait for one another", one_f_one_b,
       [](plan& p) {
         const instruction receive = program(p, 0)[6];
         cut(p, 0, 6);
         add(p, 0, 2, receive);
       },
       "device 0 stands at instruction 2 (recv of the gradient of micro-batch 0 at stage 0) and waits for device 1's"},
      {"receive before the send that feeds it", one_f_one_b,
       [](plan& p) {
         swap(p, 0, 5, 6);
         swap(p, 0, 4, 5);
       },
       "deadlock"},
      {"backward before forward", one_f_one_b, [](plan& p) { swap(p, 1, 4, 5); }, "deadlock: device 1 stands"},
      {"stages of a device in the wrong order", there_and_back, [](plan& p) { swap(p, 1, 2, 3); },
       "its own instruction 3"},
      {"wait before its send", one_f_one_b, [](plan& p) { swap(p, 0, 2, 7); }, "has not started"},
      {"wait twice", one_f_one_b, [](plan& p) { add(p, 0, 8, program(p, 0)[7]); }, "has not started, or again"},
      {"send never waited for", one_f_one_b, [](plan& p) { cut(p, 1, 16); }, "never waited for"},
      {"forward before its receive is done", one_f_one_b, [](plan& p) { swap(p, 1, 3, 4); }, "before a wait_recv"},
      {"time off on both ends", one_f_one_b,
       [](plan& p) {
         for (instruction* i : {&program(p, 0)[5], &program(p, 1)[1]})
           *i = at(*i, 18, 19);
       },
       "runs from 16 to 17"},
      {"ends disagree on the time", one_f_one_b, [](plan& p) { program(p, 0)[5] = at(program(p, 0)[5], 15, 16); },
       "the plan states 15 to 16"},
      {"everything a nanosecond late", one_f_one_b,
       [](plan& p) {
         for (device_plan& d : p.replicas[0].devices)
           for (instruction& i : d.instructions)
             if (i.end > nanoseconds{0}) i = at(i, i.start.value() + 1, i.end.value() + 1);
         p.predicted = p.replicas[0].predicted = nanoseconds{85};
         p.iteration = nanoseconds{91};
       },
       "runs from 0 to 10"},
      {"receive moved ahead keeps its late time", one_f_one_b,
       [](plan& p) {
         const instruction receive = program(p, 0)[12];
         cut(p, 0, 12);
         add(p, 0, 10, receive);
         p.replicas[0].devices[0].peak = bytes{1334};
       },
       "runs from 69 to 70"},
      {"queues joined without new times", there_and_back,
       [](plan& p) {
         p.pipeline.queues = queue_style::per_direction;
         batch(p, 0).boundary[0].forward = nanoseconds{20};
       },
       "lasts 2 ns, its cost is 20"},
      {"unknown queues", one_f_one_b, [](plan& p) { p.pipeline.queues = static_cast<queue_style>(3); },
       "unknown style"},
  };
}

/// Buffers, memory and gradients.
inline std::vector<mutation> of_memory() {
  return {
      {"buffer made twice", one_f_one_b, [](plan& p) { program(p, 0)[3].out = buffer_id{0}; }, "still in use"},
      {"buffer freed twice", one_f_one_b, [](plan& p) { program(p, 0)[14].in[0] = buffer_id{1}; }, "not in use"},
      {"buffer never freed", one_f_one_b, [](plan& p) { program(p, 0)[17].in.pop_back(); }, "never freed"},
      {"freed while being sent", one_f_one_b, [](plan& p) { swap(p, 0, 7, 8); }, "being sent"},
      {"freed while being received", one_f_one_b, [](plan& p) { program(p, 0)[8].in[0] = buffer_id{4}; },
       "being received"},
      {"input freed before the backward", one_f_one_b, [](plan& p) { swap(p, 0, 10, 11); }, "still needs it"},
      {"input freed before the weight half", split_backward, [](plan& p) { swap(p, 0, 11, 12); }, "still needs it"},
      {"read before it arrives", one_f_one_b, [](plan& p) { swap(p, 1, 3, 4); }, "before its receive is waited for"},
      {"read of another micro-batch", one_f_one_b, [](plan& p) { program(p, 0)[4].in[0] = buffer_id{0}; },
       "holds the input of micro-batch 0"},
      {"send of another buffer", one_f_one_b, [](plan& p) { program(p, 0)[5].out = buffer_id{1}; },
       "holds the activation of micro-batch 0"},
      {"send of the input", one_f_one_b, [](plan& p) { program(p, 0)[5].out = buffer_id{2}; }, "holds the input"},
      {"send after the free", one_f_one_b,
       [](plan& p) { program(p, 1)[7].in = {buffer_id{0}, buffer_id{2}, buffer_id{3}}; }, "being sent"},
      {"forward without input", one_f_one_b, [](plan& p) { program(p, 0)[1].in.clear(); }, "reads no buffer"},
      {"forward without activation", one_f_one_b, [](plan& p) { program(p, 1)[4].in = {buffer_id{2}}; },
       "reads no activation"},
      {"forward reads one buffer twice", one_f_one_b, [](plan& p) { program(p, 1)[4].in.push_back(buffer_id{2}); },
       "reads two buffers of input"},
      {"last stage makes an output", one_f_one_b, [](plan& p) { program(p, 1)[4].out = buffer_id{9}; },
       "`out` is null"},
      {"forward makes no output", one_f_one_b, [](plan& p) { program(p, 0)[1].out = buffer_id::none; },
       "`out` is null"},
      {"backward makes no output", one_f_one_b, [](plan& p) { program(p, 1)[5].out = buffer_id::none; },
       "`out` is null"},
      {"backward without gradient", one_f_one_b, [](plan& p) { program(p, 0)[10].in.clear(); }, "reads one gradient"},
      {"backward reads the wrong gradient", one_f_one_b, [](plan& p) { program(p, 0)[10].in[0] = buffer_id{0}; },
       "not the gradient"},
      {"gradients never ready", one_f_one_b, [](plan& p) { program(p, 0)[16].grads_ready = false; }, "stands nowhere"},
      {"gradients ready too early", one_f_one_b,
       [](plan& p) {
         program(p, 0)[16].grads_ready = false;
         program(p, 0)[10].grads_ready = true;
       },
       "stands at 10"},
      {"gradients ready twice", one_f_one_b, [](plan& p) { program(p, 0)[10].grads_ready = true; }, "already"},
      {"peak overstated", one_f_one_b, [](plan& p) { p.replicas[0].devices[0].peak = bytes{1335}; },
       "its peak is 1334"},
      {"peak understated", split_backward, [](plan& p) { p.replicas[0].devices[1].peak = bytes{1205}; },
       "its peak is 1206"},
      {"capacity a byte too small", one_f_one_b, [](plan& p) { p.replicas[0].devices[1].capacity = bytes{1205}; },
       "needs 1206 bytes, the device has 1205"},
      {"weights alone too large", one_f_one_b, [](plan& p) { p.replicas[0].devices[1].capacity = bytes{800}; },
       "before its first instruction"},
      {"negative weights", one_f_one_b,
       [](plan& p) {
         p.replicas[0].devices[1].fixed = bytes{-900};
         p.replicas[0].devices[1].peak = bytes{-594};
       },
       "static_bytes is negative"},
      {"load of negative size", one_f_one_b, [](plan& p) { program(p, 0)[0].size = bytes{-16}; }, "of -16 bytes"},
      {"offset without arena", one_f_one_b, [](plan& p) { program(p, 0)[0].offset = bytes{0}; }, "no arena"},
      {"offset without buffer", with_arena, [](plan& p) { program(p, 0)[10].offset = bytes{0}; },
       "an offset and no buffer"},
      {"arena of negative size", with_arena, [](plan& p) { p.replicas[0].devices[0].arena = bytes{-184}; },
       "arena_bytes is negative"},
      {"arena without offset", with_arena, [](plan& p) { program(p, 0)[0].offset.reset(); }, "no offset in the arena"},
      {"arena too small", with_arena,
       [](plan& p) {
         p.replicas[0].devices[0].arena = bytes{183};
         p.replicas[0].devices[0].peak = bytes{1363};
       },
       "outside the arena"},
      {"offset below the arena", with_arena, [](plan& p) { program(p, 0)[0].offset = bytes{-1}; }, "outside the arena"},
      {"buffers overlap by a byte", with_arena, [](plan& p) { program(p, 0)[3].offset = bytes{79}; },
       "overlaps the live buffer 1"},
      {"buffer laid over a later neighbour", with_arena, [](plan& p) { program(p, 1)[8].offset = bytes{60}; },
       "overlaps the live buffer 1"},
  };
}

/// All of them.
inline std::vector<mutation> all() {
  std::vector<mutation> list = of_batches();
  for (auto more : {of_programs(), of_memory()})
    list.insert(list.end(), more.begin(), more.end());
  return list;
}

}  // namespace mutations
